"""Generated clicks on advertisements, shaped like Criteo's: 13 counts and 26 categorical features.

Popularity is a power law, ids that were seen lately come again, and a planted factorization machine
draws the labels. Sample i is a function of the seed and i alone, so that batches and ranks can be
of any size.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import gcd
from typing import Any

import numpy as np
import tensorflow as tf

from trepak.models import counter_random
from trepak.models.click_batches import batch_of, check_shard, prepared
from trepak.models.planted import PlantedClicks
from trepak.models.power_law import PowerLaw

# Distinct values of C1 to C26 in Criteo's Kaggle data set: 33.8 million in all.
_CRITEO = (
    *(1460, 583, 10131227, 2202608, 305, 24, 12517, 633, 3, 93145, 5683, 8351593, 3194),
    *(27, 14992, 5461306, 10, 5652, 2173, 4, 7046547, 18, 15, 286181, 105, 142572),
)
_SMALLEST = 10  # rows that scaling leaves to a vocabulary
_MOST_ROWS = 2**31 - 1  # ids are int32
_BLOCK = 1024  # samples whose arrays fit into a core's cache
_FITTED = 1 << 14  # samples that the click rate and the spread of the logits are fitted to
# Mean of log(1 + count), whose distribution is nearly exponential, for the first and the last
# numerical feature: a count of 24 random bits then stays below (2^24)^1.25 = 2^30.
_MEANS = (0.5, 1.25)


def criteo_vocabularies(scale: float = 1.0) -> dict[str, int]:
    """Returns vocabulary sizes like those of Criteo's Kaggle data set, "C1" to "C26".

    Args:
        scale: multiplies the sizes, but leaves 10 rows to each that has them: 1 makes 33.8 million
            rows in all, 0.001 makes 34,000.

    Raises:
        ValueError: `scale` is not above 0.
    """
    if not scale > 0:
        raise ValueError(f"scale multiplies the vocabularies: it is above 0, got {scale}.")
    sizes = (max(min(full, _SMALLEST), round(full * scale)) for full in _CRITEO)
    return {f"C{number}": size for number, size in enumerate(sizes, 1)}


@dataclass(frozen=True)
class Clicks:
    """Samples, n of them.

    Attributes:
        counts: int32, (numerical, n), from 0.
        ids: int32, (features, n), from 0; features in the order of the stream's vocabularies.
        probabilities: of a click, float64, (n,): what the best model would predict.
        labels: int32, (n,): 1 for a click.
    """

    counts: np.ndarray[Any, Any]
    ids: np.ndarray[Any, Any]
    probabilities: np.ndarray[Any, Any]
    labels: np.ndarray[Any, Any]


class ClickStream:
    """An endless stream of generated samples.

    A sample's id of a feature is a draw from the feature's power law, with the probability
    1 − `reuse`. Otherwise it is the id that the feature had d samples before, which may again
    repeat an earlier one; d ≤ `window` has a log-uniform distribution. Each id thereby keeps the
    power law's probability. Before sample 0 the stream goes back for ever, unseen.

    Machines whose NumPy rounds powers differently can differ in an id once in some 10^10.
    """

    def __init__(
        self,
        vocabularies: Mapping[str, int],
        *,
        numerical: int = 13,
        exponent: float = 1.05,
        reuse: float = 0.3,
        window: int = 10_000,
        click_rate: float = 0.25,
        spread: float = 1.5,
        seed: int = 0,
    ) -> None:
        """Plants the model that decides who clicks.

        Args:
            vocabularies: categorical features and the number of ids of each, e.g.
                `criteo_vocabularies(0.001)`; ids count from 0.
            numerical: the number of counts, from 0.
            exponent: of the power law that the ids follow, see `PowerLaw`.
            reuse: the share of ids that repeat one of the last `window` samples; below 1.
            window: the longest distance of a repetition, in samples of the whole stream.
            click_rate: the share of clicks, between 0 and 1.
            spread: the standard deviation of the true logits, above 0; it decides the best AUC.
            seed: of everything; a whole number.

        Raises:
            ValueError: an argument is out of range.
        """
        _check(vocabularies, numerical, reuse, window, click_rate, spread)
        self.vocabularies = dict(vocabularies)
        self._laws = [PowerLaw(rows, exponent) for rows in self.vocabularies.values()]
        self._reuse = reuse
        self._distances = PowerLaw(window, 1.0)

        features = len(self._laws)
        self._draws = counter_random.streams(seed, "ids", features)
        self._repeats = counter_random.streams(seed, "repeats", features)
        self._count_draws = counter_random.streams(seed, "counts", numerical)
        self._label_draws = counter_random.streams(seed, "labels", 1)[0]
        self._means = np.linspace(*_MEANS, numerical, dtype=np.float32)[:, None]

        self._planted = PlantedClicks(seed, features, self._means)
        # Unseen samples, so far apart that none repeats what another one has.
        unseen = -1 - np.arange(_FITTED) * (window + 1)
        self._planted.fit(*self._features(unseen), click_rate=click_rate, spread=spread)

    def samples(self, indices: Any) -> Clicks:
        """Returns samples.

        Args:
            indices: whole numbers from 0, of any order, (n,): which samples of the stream.
        """
        indices = np.asarray(indices, np.int64)
        cuts = range(_BLOCK, len(indices), _BLOCK)
        blocks = [self._block(block) for block in np.split(indices, cuts)]
        return Clicks(*(np.concatenate(parts, axis=-1) for parts in zip(*blocks, strict=True)))

    def dataset(
        self, samples: int, batch_size: int, *, rank: int = 0, size: int = 1, first: int = 0
    ) -> tf.data.Dataset:
        """Returns one rank's batches, as `click_batches.batch_of` makes them.

        Rank r reads the samples first + r, first + r + size, …, so that the ranks' batches of a
        step are together those of one process with batches of size · batch_size. All ranks have
        samples // (size · batch_size) batches; the samples that are left over are not read.

        Args:
            samples: of all ranks together.
            batch_size: samples in each of this rank's batches.
            rank: this one, from 0.
            size: the number of ranks.
            first: the first sample's index, e.g. behind those of the training for a test set.

        Raises:
            ValueError: there is no such rank, or there are not enough samples for a batch.
        """
        check_shard(rank, size, batch_size)
        steps = samples // (size * batch_size)
        if steps < 1 or first < 0:
            raise ValueError(
                f"a batch for each of {size} ranks takes {size * batch_size} samples, from index 0 "
                f"on: got samples={samples}, first={first}."
            )
        offsets = first + rank + size * np.arange(batch_size)
        numerical = len(self._means)

        def draw(step: Any) -> tuple[Any, Any, Any]:
            clicks = self.samples(offsets + step * (size * batch_size))
            return clicks.counts.T, clicks.ids, clicks.labels

        def batch(step: Any) -> Any:
            counts, ids, labels = tf.numpy_function(draw, [step], [tf.int32] * 3)
            counts = tf.ensure_shape(counts, (batch_size, numerical))
            ids = tf.ensure_shape(ids, (len(self._laws), batch_size))
            labels = tf.ensure_shape(labels, (batch_size,))
            rows = dict(zip(self.vocabularies, tf.unstack(ids), strict=True))
            return batch_of(counts if numerical else None, rows, labels)

        return prepared(tf.data.Dataset.range(steps), batch)

    def popularity(self, feature: str) -> PowerLaw:
        """Returns the power law of a feature's ids, e.g. for the hit share of the hottest rows.

        Raises:
            ValueError: there is no such feature.
        """
        return self._laws[self._number(feature)]

    def hottest(self, feature: str, top: int) -> np.ndarray[Any, np.dtype[np.int32]]:
        """Returns a feature's `top` most popular ids, the most popular one first: int32, (top,).

        Raises:
            ValueError: there is no such feature, or it has fewer ids.
        """
        law = self.popularity(feature)
        if not 0 <= top <= law.rows:
            raise ValueError(f"{feature} has {law.rows} ids: top is between 0 and that, got {top}.")
        return _scattered(np.arange(top), law.rows)

    def probabilities(self, feature: str) -> np.ndarray[Any, np.dtype[np.float64]]:
        """Returns the probability of each of a feature's ids: float64, (vocabulary,).

        Raises:
            ValueError: there is no such feature.
        """
        law = self.popularity(feature)
        by_id = np.empty(law.rows)
        by_id[self.hottest(feature, law.rows)] = law.probabilities()
        return by_id

    def _number(self, feature: str) -> int:
        if feature not in self.vocabularies:
            raise ValueError(f"there is no {feature!r}; there are: {', '.join(self.vocabularies)}.")
        return list(self.vocabularies).index(feature)

    def _block(self, indices: Any) -> tuple[Any, Any, Any, Any]:
        ids, counts = self._features(indices)
        probabilities = self._planted.probabilities(ids, counts)
        chances = counter_random.uniform(counter_random.bits(self._label_draws, indices))
        return counts, ids, probabilities, (chances < probabilities).astype(np.int32)

    def _features(self, indices: Any) -> tuple[Any, Any]:
        """Returns ids and counts of samples, (features, n) and (numerical, n), both int32."""
        draws = counter_random.uniform(counter_random.bits(self._draws, self._origins(indices)))
        ids = np.empty(draws.shape, np.int32)
        for row, law in enumerate(self._laws):
            ids[row] = _scattered(law.rank(draws[row]), law.rows)
        # P(count ≥ c) = (1 + c)^(−1 / mean)
        bits = counter_random.bits(self._count_draws, indices) >> np.uint64(40)
        chances = (bits.astype(np.float32) + np.float32(1)) * np.float32(2**-24)
        return ids, (chances**-self._means).astype(np.int32) - np.int32(1)

    def _origins(self, indices: Any) -> Any:
        """Returns which sample's draw each id is, own or repeated: int64, (features, n)."""
        origins = np.tile(indices, (len(self._laws), 1))
        features, places = np.indices(origins.shape).reshape(2, -1)
        while len(places):
            at = origins[features, places]
            chances = counter_random.uniform(counter_random.bits(self._repeats[features, 0], at))
            again = np.flatnonzero(chances < self._reuse)
            features, places = features[again], places[again]
            # Below `reuse` the numbers are uniform once more: they are the distance as well.
            distances = 1 + self._distances.rank(chances[again] / self._reuse)
            origins[features, places] = at[again] - distances
        return origins


def _scattered(ranks: Any, rows: int) -> np.ndarray[Any, np.dtype[np.int32]]:
    """Returns the ids of ranks of popularity, spread evenly over the table, as real ids are."""
    step = round(rows * 0.618) or 1
    while gcd(step, rows) > 1:  # else several ranks would share an id
        step += 1
    return (ranks * step % rows).astype(np.int32)


def _check(
    vocabularies: Mapping[str, int],
    numerical: int,
    reuse: float,
    window: int,
    click_rate: float,
    spread: float,
) -> None:
    if not vocabularies:
        raise ValueError("a stream has at least one categorical feature: vocabularies are empty.")
    for feature, rows in vocabularies.items():
        if not 1 <= rows <= _MOST_ROWS:
            raise ValueError(
                f"{feature} has {rows} ids: it needs 1 at least, and int32 holds them."
            )
    if window < 1:
        raise ValueError(f"window is a number of samples, at least 1, got {window}.")
    if numerical < 0:
        raise ValueError(f"numerical is a number of counts, at least 0, got {numerical}.")
    if not 0 <= reuse < 1:
        raise ValueError(f"reuse is a share, from 0 to below 1, got {reuse}.")
    if not 0 < click_rate < 1:
        raise ValueError(f"click_rate is between 0 and 1, got {click_rate}.")
    if not spread > 0:
        raise ValueError(f"spread is a standard deviation, above 0, got {spread}.")

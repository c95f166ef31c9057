"""What is trained on an uneven cluster, how unevenly, and the most that anything could gain."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

_SAMPLES = 200_000  # of a distribution, for its means

Times = NDArray[np.float64]


@dataclass(frozen=True)
class RankTimes:
    """How long a rank's steps take, in ms: a computation, and what comes on top.

    Attributes:
        compute: of every step.
        low: the least that comes on top, drawn uniformly.
        high: the most.
        videos: ms that batches of videos take on average, instead (Figure 2.9b).
        sentences: times that are in proportion to a sentence's words instead, before what comes on
            top.
    """

    compute: float = 0.0
    low: float = 0.0
    high: float = 0.0
    videos: float = 0.0
    sentences: bool = False

    def draw(self, rng: np.random.Generator, count: int) -> Times:
        """Returns so many steps' times in ms, [count]."""
        if self.videos:
            return videos(rng, self.videos, count)
        computed = WORD_MS * words(rng, count) if self.sentences else self.compute
        return computed + self.on_top(rng, count)

    def on_top(self, rng: np.random.Generator, count: int) -> Times:
        """Returns what comes on top of so many steps, in ms, [count]."""
        return rng.uniform(self.low, self.high, count)


# Figure 2.9b: 2,000 batches took 156 to 8,000 ms, 1,219 on average, with a deviation of 760.
_SHORTEST, _LONGEST, _MEAN, _DEVIATION = 156.0, 8000.0, 1219.0, 760.0
STEP_MS = 350.0  # on average, in most cases

# The thesis does not say how long its sentences are; these are as uneven as its videos.
MOST_WORDS, _MEAN_WORDS = 64, 16.0
WORD_MS = STEP_MS / _MEAN_WORDS


def videos(rng: np.random.Generator, mean: float, count: int) -> Times:
    """Returns times of batches as in Figure 2.9b, in ms: log-normal between its bounds.

    Args:
        rng: draws them.
        mean: ms, which the figure's mean is scaled to.
        count: how many, [count].
    """
    times = _lognormal(rng, _MEAN, count)
    return mean / _MEAN * np.clip(times, _SHORTEST, _LONGEST)


def words(rng: np.random.Generator, count: int) -> Times:
    """Returns how many words sentences have, [count]: log-normal between 2 and `MOST_WORDS`."""
    return np.clip(np.round(_lognormal(rng, _MEAN_WORDS, count)), 2, MOST_WORDS)


def _lognormal(rng: np.random.Generator, mean: float, count: int) -> Times:
    spread = np.log(1 + (_DEVIATION / _MEAN) ** 2)
    return rng.lognormal(np.log(mean) - spread / 2, np.sqrt(spread), count)


@dataclass(frozen=True)
class Case:
    """One comparison.

    Attributes:
        name: of it.
        task: what is trained; see `tasks`.
        ranks: how long steps take, by rank.
        exchange_ms: what an allreduce of the gradients takes on this case's links.
        parameters: of the task's network.
        rate: the learning rate, of SGD with momentum 0.9: that with which Horovod's ranks reach
            the target first.
        batch: samples of a rank's step.
        target: the held-out loss to reach; fixed beforehand, from what Horovod's ranks reach. The
            training ends with it. None: there is none.
        target_accuracy: the held-out accuracy to reach instead.
        methods: the methods; see `methods`.
        groups: of ranks, for the method that has them.
        epochs: of a training, if neither the target nor early stopping ends it.
        epoch_steps: of each rank on average, in an epoch.
        decayed_epochs: the last ones, with a tenth of the learning rate.
        seeds: trainings by each method.
        dynamic_sharding: ranks take samples from one order that they share; otherwise each has a
            shard.
        records: what each step took is kept.
        snapshot_s: seconds after which rank 0's weights are kept, at first, and later ever more
            rarely; they are evaluated when the training is over, so that nothing holds it up. None:
            all ranks evaluate after each epoch.
        final_samples: held-out samples of the accuracy with which such a training ends.
        to_the_end: trainings end where accuracies rise no more, and these are compared.
    """

    name: str
    task: str
    ranks: Sequence[RankTimes]
    exchange_ms: float
    parameters: int
    rate: float
    batch: int
    target: float | None
    methods: Sequence[str]
    target_accuracy: float | None = None
    groups: Sequence[Sequence[int]] = ()
    epochs: int = 40
    epoch_steps: int = 48
    decayed_epochs: int = 0
    seeds: int = 5
    dynamic_sharding: bool = False
    records: bool = False
    snapshot_s: float | None = None
    final_samples: int = 0
    to_the_end: bool = False

    def rate_of(self, epoch: int, _: float = 0.0) -> float:
        """Returns the learning rate of an epoch; Keras also gives the one before."""
        return self.rate / 10 if epoch >= self.epochs - self.decayed_epochs else self.rate

    def step_ms(self) -> float:
        """Returns what a step takes where ranks wait: the slowest's, and the exposed exchange."""
        return float(self._times().max(axis=0).mean()) + self.exchange_ms

    def bound(self, step_ms: float | None = None) -> float:
        """Returns by how much not waiting can shorten the time per gradient, to first order.

        Without waiting each rank takes a step as fast as it can, and the exchange is hidden.

        Args:
            step_ms: what a step takes where ranks wait; None: as in `step_ms`.
        """
        waiting = self.step_ms() if step_ms is None else step_ms
        return waiting * float((1 / self._times().mean(axis=1)).mean())

    def _times(self) -> Times:
        rng = np.random.default_rng(0)
        return np.stack([one.draw(rng, _SAMPLES) for one in self.ranks])

    def bits_per_second(self) -> int:
        """Returns the rate of a link on which a ring of all ranks takes `exchange_ms`."""
        size = len(self.ranks)
        bits = 2 * (size - 1) / size * 32 * self.parameters
        return round(1000 * bits / self.exchange_ms)


@dataclass(frozen=True)
class Job:
    """One job: a case, by several methods and with several seeds.

    Attributes:
        part: a name, where a case has several jobs.
    """

    case: Case
    methods: Sequence[str]
    seeds: Sequence[int]
    part: str = ""

    @property
    def name(self) -> str:
        """A name of its own, also of the files that its trainings are kept in."""
        return f"{self.case.name} {self.part}".strip()

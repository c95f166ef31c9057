"""What `trepak bench rna` trains, how unevenly, and the most that anything could gain by it.

Injected delays are ten times the thesis', so that one machine can keep up with all ranks. A step
takes 350 ms on average in all cases but "mixed", "accuracy" and "even".
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

_SAMPLES = 200_000  # of a distribution, for its means

HOROVOD, RNA, GROUPED, EAGER, ADPSGD = "horovod", "rna", "rna groups", "eager-sgd", "ad-psgd"
ALL_WAYS = (HOROVOD, RNA, EAGER, ADPSGD)

Times = NDArray[np.float64]


@dataclass(frozen=True)
class Uneven:
    """How long a rank's steps take, in ms: a computation, and what comes on top.

    Attributes:
        compute: of every step.
        low: the least that comes on top, drawn uniformly.
        high: the most.
        videos: times of batches of videos instead (Figure 2.9b), in all.
        sentences: times that are in proportion to a sentence's words instead, in all.
    """

    compute: float = 0.0
    low: float = 0.0
    high: float = 0.0
    videos: bool = False
    sentences: bool = False

    def draw(self, rng: np.random.Generator, count: int) -> Times:
        """Returns so many steps' times in ms, [count]."""
        if self.videos:
            return videos(rng, count)
        if self.sentences:
            return WORD_MS * words(rng, count)
        return self.compute + rng.uniform(self.low, self.high, count)


# Figure 2.9b: 2,000 batches took 156 to 8,000 ms, 1,219 on average, with a deviation of 760.
_SHORTEST, _LONGEST, _MEAN, _DEVIATION = 156.0, 8000.0, 1219.0, 760.0
_STEP_MS = 350.0  # on average

# The thesis does not say how long its sentences are; these are as uneven as its videos.
MOST_WORDS, _MEAN_WORDS = 64, 16.0
WORD_MS = _STEP_MS / _MEAN_WORDS


def videos(rng: np.random.Generator, count: int) -> Times:
    """Returns times of batches as in Figure 2.9b, scaled, in ms: log-normal between its bounds."""
    times = _lognormal(rng, _MEAN, count)
    return _STEP_MS / _MEAN * np.clip(times, _SHORTEST, _LONGEST)


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
        task: what is trained; see `rna_tasks`.
        ranks: how long steps take, by rank.
        exchange_ms: what an allreduce of the gradients takes on this case's links.
        parameters: of the task's network.
        rate: the learning rate, of SGD with momentum 0.9: that with which Horovod's ranks reach
            the target first; see `rna_rates`.
        batch: samples of a rank's step.
        target: the held-out loss to reach; fixed beforehand, from what Horovod's ranks reach. The
            training ends with it. None: there is none.
        ways: the arms, see `rna_report`.
        groups: of ranks, for the arm "rna groups".
        epochs: of a training, if neither the target nor early stopping ends it.
        epoch_steps: of each rank on average, in an epoch.
        seeds: trainings by each way.
        to_the_end: early stopping alone ends trainings, and accuracies are compared.
    """

    name: str
    task: str
    ranks: Sequence[Uneven]
    exchange_ms: float
    parameters: int
    rate: float
    batch: int
    target: float | None
    ways: Sequence[str] = ALL_WAYS
    groups: Sequence[Sequence[int]] = ()
    epochs: int = 40
    epoch_steps: int = 48
    seeds: int = 5
    to_the_end: bool = False

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


SCALING = "transformer"  # the case that is run with fewer ranks too (Figure 5.6)
_EVEN, _SLOW = Uneven(100, 0, 500), Uneven(100, 500, 1000)


def cases(size: int) -> list[Case]:
    """Returns all cases for so many ranks."""
    even, video = [_EVEN] * size, [Uneven(videos=True)] * size
    return [
        Case("resnet", "residual", even, 100, 65_956, 0.02, 2, 0.4),
        _mixed(Case("mixed", "residual", even, 100, 65_956, 0.02, 2, 0.4)),
        Case("lstm", "videos", video, 100, 33_637, 0.04, 1, 1.6),
        _sentences(size, 0.5),
        Case("vgg", "dense", even, 200, 105_092, 0.02, 2, 1.2),
        _mixed(Case("vgg mixed", "dense", even, 200, 105_092, 0.02, 2, 1.2, seeds=1)),
        *_to_the_end(size),
        Case(
            "even",
            "residual",
            [Uneven(100)] * size,
            1,
            65_956,
            0.02,
            2,
            None,
            (HOROVOD, RNA),
            epochs=2,
        ),
        *(_sentences(ranks) for ranks in (2, 4) if ranks < size),
    ]


def _mixed(case: Case) -> Case:
    """Returns the case with half of the ranks slow, and with groups."""
    size = len(case.ranks)
    half = size // 2
    return dataclasses.replace(
        case,
        ranks=[_EVEN] * half + [_SLOW] * (size - half),
        ways=(*case.ways, GROUPED),
        groups=[[*range(half)], [*range(half, size)]],
    )


def _sentences(size: int, target: float | None = None) -> Case:
    """Returns the transformer's case; a ring of 8 ranks takes 150 ms on its links."""
    name = SCALING if target is not None else f"{SCALING} on {size}"
    ring = 150 * ((size - 1) / size) / (7 / 8)
    ranks = [Uneven(sentences=True)] * size
    case = Case(name, "sentences", ranks, ring, 21_636, 0.02, 1, target)
    return case if target is not None else dataclasses.replace(case, epochs=1, seeds=1)


def _to_the_end(size: int) -> list[Case]:
    """Returns the cases of accuracies, at half the time per step; an epoch is a pass of 8 ranks."""
    ranks = [Uneven(50, 0, 250)] * size
    case = Case("accuracy", "noisy", ranks, 50, 65_956, 0.1, 32, None, epochs=200, epoch_steps=16)
    return [dataclasses.replace(case, to_the_end=True)]

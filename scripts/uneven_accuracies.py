"""How accurate the cases of `trepak bench elastic_bsp` end by each way, with many seeds.

Single trainings differ by more than the ways do, and a job takes minutes for each. Here one process
takes all ranks' steps, in the order in which they would end, each with the parameters that its rank
would have: the accuracies are real, the order is emulated, and no times are measured.
"""

from __future__ import annotations

import argparse
import heapq
import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import trepak.keras  # noqa: F401  # before Keras: it keeps TensorFlow's start-up noise off the terminal

# isort: split
import keras
import numpy as np
import tensorflow as tf

from trepak.horovod_ext.zipline import zipline
from trepak.scripts.elastic_bsp_cases import COMPARED, ELASTIC, cases
from trepak.scripts.uneven.cases import Case
from trepak.scripts.uneven.tasks import task
from trepak.scripts.uneven.ways import ASP, HOROVOD, SSP
from trepak.scripts.uneven.worker import deal

_STALENESS = 3  # of SSP
_MOMENTUM = 0.9
_DRAWS = 20_000
_WANTED = 0.3  # points that ElasticBSP may be below the best of the others

Expected = Sequence[float]


def grants(way: str, taken: Sequence[int], granted: Sequence[float], each: Expected) -> list[float]:
    """Returns how many steps each rank may have taken before it waits, [ranks].

    Args:
        way: its name.
        taken: steps of each rank so far.
        granted: what this returned last.
        each: seconds that a step of each rank is expected to take.
    """
    if way == ASP:
        return [math.inf] * len(taken)
    if way == SSP:
        return [min(taken) + _STALENESS + 1.0] * len(taken)
    if list(taken) != list(granted):
        return list(granted)  # not all have come to the barrier
    lookahead = 1 if way == HOROVOD else int(way.split()[1])
    ends = np.outer(each, np.arange(1, lookahead + 1))
    return [
        float(count + more) for count, more in zip(taken, zipline(ends).iterations, strict=True)
    ]


def order(
    way: str, each: Expected, takes: Callable[[int], float], steps: int
) -> Iterator[tuple[int | None, list[int]]]:
    """Yields which rank ends a step, and who begins one then, until so many are over.

    Args:
        way: its name.
        each: seconds that a step of each rank is expected to take.
        takes: returns the seconds that the next step of a rank takes.
        steps: of all ranks together.
    """
    taken, granted = [0] * len(each), [0.0] * len(each)
    idle = set(range(len(each)))
    under_way: list[tuple[float, int]] = []
    begun, now, ended = 0, 0.0, None
    while True:
        granted = grants(way, taken, granted, each)
        begin = [rank for rank in sorted(idle) if taken[rank] < granted[rank]][: steps - begun]
        yield ended, begin
        for rank in begin:
            heapq.heappush(under_way, (now + takes(rank), rank))
        begun += len(begin)
        idle.difference_update(begin)
        if not under_way:
            return
        now, ended = heapq.heappop(under_way)
        taken[ended] += 1
        idle.add(ended)


class Cluster:
    """All ranks' parameters and momenta, and the servers' parameters.

    Attributes:
        model: the network; after a training it has what the servers have.
    """

    def __init__(self, case: Case) -> None:
        """Makes the network of a case."""
        self._case, self._task = case, task(case.task)
        self.model = self._task.build()
        self._loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        self._sizes = [math.prod(v.shape) for v in self.model.trainable_variables]
        size, count = len(case.ranks), sum(self._sizes)
        self._served = tf.Variable(tf.zeros(count))
        self._of_ranks = tf.Variable(tf.zeros((size, count)))
        self._momenta = tf.Variable(tf.zeros((size, count)))
        self._train = [tf.constant(part) for part in self._task.train]

    def accuracy(self, way: str, seed: int) -> float:
        """Trains from new weights; returns the held-out accuracy of what the servers have then."""
        keras.utils.set_random_seed(1000 * seed)
        new = [tf.reshape(v, [-1]) for v in self._task.build().trainable_variables]
        self._served.assign(tf.concat(new, 0))
        self._momenta.assign(tf.zeros_like(self._momenta))
        case, size = self._case, len(self._case.ranks)
        hands = [deal(case, self._task, seed, rank, size) for rank in range(size)]
        dealt = [iter(hand.samples) for hand in hands]
        times = [iter((hand.times + case.exchange_ms) / 1000) for hand in hands]
        each = [float((hand.times.mean() + case.exchange_ms) / 1000) for hand in hands]
        for epoch in range(case.epochs):
            rate = tf.constant(case.rate_of(epoch))
            events = order(way, each, lambda rank: next(times[rank]), case.epoch_steps * size)
            for ended, begin in events:
                if ended is not None:
                    self._step(tf.constant(ended), tf.constant(next(dealt[ended])), rate)
                for rank in begin:
                    self._of_ranks[rank].assign(self._served)
        self._show(self._served)
        logits = self.model.predict(self._task.test[0], batch_size=1024, verbose=0)
        return float((logits.argmax(1) == self._task.test[1]).mean())

    @tf.function  # type: ignore[untyped-decorator]
    def _step(self, rank: Any, samples: Any, rate: Any) -> None:
        """Takes a rank's step; what it changes is added to the servers' parameters at once."""
        self._show(self._of_ranks[rank])
        inputs, labels = (tf.gather(part, samples) for part in self._train)
        with tf.GradientTape() as tape:
            loss = self._loss(labels, self.model(inputs, training=True))
        gradients = tape.gradient(loss, self.model.trainable_variables)
        flat = tf.concat([tf.reshape(gradient, [-1]) for gradient in gradients], 0)
        change = _MOMENTUM * self._momenta[rank] - rate * flat
        self._momenta[rank].assign(change)
        self._served.assign_add(change / len(self._case.ranks))

    def _show(self, parameters: Any) -> None:
        """Gives the network parameters, [parameters]."""
        parts = tf.split(parameters, self._sizes)
        for variable, part in zip(self.model.trainable_variables, parts, strict=True):
            variable.assign(tf.reshape(part, variable.shape))


def compare(found: dict[str, list[float]], trials: Sequence[int]) -> Iterator[str]:
    """Yields lines that say how far others are above ElasticBSP, and how well trials can tell.

    Args:
        found: accuracies of each way, seed by seed.
        trials: numbers of trials that a comparison of medians may have.
    """
    accuracies = {way: np.array(of_seeds) for way, of_seeds in found.items()}
    ours = accuracies.pop(ELASTIC[0])
    for way, theirs in accuracies.items():
        above = 100 * (theirs - ours)
        error = above.std(ddof=1) / math.sqrt(len(above))
        yield f"{way} is {above.mean():.2f} points above {ELASTIC[0]} (standard error {error:.2f})"
    rng = np.random.default_rng(0)
    for count in trials:
        drawn = rng.integers(len(ours), size=(_DRAWS, count))
        medians = [np.median(theirs[drawn], axis=1) for theirs in accuracies.values()]
        gaps = 100 * (np.max(medians, axis=0) - np.median(ours[drawn], axis=1))
        share = (gaps > _WANTED).mean()
        yield f"of {count} trials medians are over {_WANTED} points apart in {share:.0%} of draws"


def main() -> None:
    """Prints the accuracies, and what they say."""
    names = {case.name: case for case in cases()}
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--case", choices=[*names], default="alexnet on 8")
    parser.add_argument("--seeds", type=int, nargs=2, default=[100, 130], help="from, to")
    parser.add_argument("--trials", type=int, nargs="+", default=[3, 9, 18])
    options = parser.parse_args()
    tf.config.threading.set_intra_op_parallelism_threads(1)
    cluster = Cluster(names[options.case])
    found: dict[str, list[float]] = {way: [] for way in COMPARED}
    for seed in range(*options.seeds):
        for way in COMPARED:
            found[way].append(cluster.accuracy(way, seed))
        shown = ", ".join(f"{way} {of_seeds[-1]:.4f}" for way, of_seeds in found.items())
        print(f"{options.case}, seed {seed}: {shown}", flush=True)
    for line in compare(found, options.trials):
        print(line)


if __name__ == "__main__":
    main()

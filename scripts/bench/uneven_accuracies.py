"""How accurate the cases of `trepak bench elastic_bsp` end by each method, with many seeds.

Single trainings differ by more than the methods do, and a job takes minutes for each. Here one
process takes all ranks' steps, in the order in which they end when a job's scheduler is simulated,
each with the parameters that its rank would have: the accuracies are real, no times are measured.
"""

from __future__ import annotations

import argparse
import dataclasses
import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import trepak.keras  # noqa: F401  # before Keras: it keeps TensorFlow's start-up noise off the terminal

# isort: split
import keras
import numpy as np
import tensorflow as tf

from trepak.horovod_ext.elastic_bsp import StepOptions
from trepak.horovod_ext.elastic_bsp_simulation import simulate
from trepak.scripts.bench.elastic_bsp_cases import COMPARED, ELASTIC, cases
from trepak.scripts.bench.uneven.cases import Case
from trepak.scripts.bench.uneven.methods import ASP, HOROVOD, SSP
from trepak.scripts.bench.uneven.schedules import Schedule, schedule_of
from trepak.scripts.bench.uneven.tasks import task
from trepak.tf_plugins.data.dynamic_sharding import shuffled

_MOMENTUM = 0.9
_DRAWS = 20_000
_WANTED = 0.3  # points that ElasticBSP may be below the best of the others


def options_of(method: str) -> StepOptions:
    """Returns the rules by which ranks wait for each other: as trepak's defaults, or for all."""
    if method in (ASP, SSP):
        return StepOptions(method)
    return StepOptions("elastic_bsp", lookahead=1 if method == HOROVOD else int(method.split()[1]))


def epochs_of(case: Case, method: str, schedules: Sequence[Schedule]) -> Iterator[Any]:
    """Yields an epoch's steps: rank, begin and end of each, in the order of their ends; [steps, 3].

    All ranks begin an epoch together, when all have ended the one before. Steps that one has too
    many, as they were under method when it was over, the next one has too few.

    Args:
        case: how many epochs, and their steps.
        method: its name.
        schedules: of each rank.
    """
    times = [(schedule.times + case.exchange_ms) / 1000 for schedule in schedules]
    steps = case.epoch_steps * len(schedules)
    epochs = [steps] * case.epochs
    recorded = simulate(times, options_of(method), 2 * sum(epochs), epochs).recorded
    first = 0
    for over in np.cumsum(epochs):
        # Who is at a step when an epoch is over, ends it.
        while over < len(recorded) and recorded[over:, 1].min() < recorded[over - 1, 2]:
            over += 1
        yield recorded[first:over]
        first = over


def events_of(steps: Any) -> Iterator[tuple[list[int], int]]:
    """Yields for each end of a step who has begun one since the end before, and whose step ends.

    Args:
        steps: what `epochs_of` yields.
    """
    begins = steps[np.argsort(steps[:, 1], kind="stable")]
    begun = 0
    for rank, _, end in steps:
        # Who begins when another ends has waited for that.
        until = int(np.searchsorted(begins[:, 1], end))
        yield begins[begun:until, 0].astype(int).tolist(), int(rank)
        begun = until


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
        self._final = self._task.more(case.final_samples)
        self._train = [tf.constant(part) for part in self._task.train]

    def accuracy(self, method: str, seed: int) -> float:
        """Trains from new weights; returns the held-out accuracy of what the servers have then."""
        keras.utils.set_random_seed(1000 * seed)
        new = [tf.reshape(v, [-1]) for v in self._task.build().trainable_variables]
        self._served.assign(tf.concat(new, 0))
        self._momenta.assign(tf.zeros_like(self._momenta))
        case, size = self._case, len(self._case.ranks)
        schedules = [schedule_of(case, self._task, seed, rank, size) for rank in range(size)]
        next_batch = self._dealer(schedules, seed)
        for epoch, of_epoch in enumerate(epochs_of(case, method, schedules)):
            rate = tf.constant(case.rate_of(epoch))
            for begin, ends in events_of(of_epoch):
                for rank in begin:
                    self._of_ranks[rank].assign(self._served)
                self._step(tf.constant(ends), next_batch(ends), rate)
        self._show(self._served)
        inputs, labels = self._final
        logits = self.model.predict(inputs, batch_size=1024, verbose=0)
        return float((logits.argmax(1) == labels).mean())

    def _dealer(self, schedules: Sequence[Schedule], seed: int) -> Callable[[int], Any]:
        """Returns what returns the numbers of a rank's next batch of samples."""
        case = self._case
        if not case.dynamic_sharding:
            shards = [iter(schedule.samples) for schedule in schedules]
            return lambda rank: tf.constant(next(shards[rank]))
        steps = (case.epochs * case.epoch_steps + 1) * len(case.ranks)
        numbers = shuffled(0, steps * case.batch, len(self._task.train[0]), seed)
        order = iter(tf.reshape(numbers, (steps, case.batch)))
        return lambda rank: next(order)

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
        found: accuracies of each method, seed by seed.
        trials: numbers of trials that a comparison of medians may have.
    """
    accuracies = {method: np.array(of_seeds) for method, of_seeds in found.items()}
    ours = accuracies.pop(ELASTIC[0])
    for method, theirs in accuracies.items():
        above = 100 * (theirs - ours)
        error = above.std(ddof=1) / math.sqrt(len(above))
        mean = f"{above.mean():.2f} points above {ELASTIC[0]}"
        yield f"{method} is {mean} (standard error {error:.2f})"
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
    parser.add_argument("--shards", action="store_true", help="of each rank, not one order")
    options = parser.parse_args()
    tf.config.threading.set_intra_op_parallelism_threads(1)
    case = dataclasses.replace(names[options.case], dynamic_sharding=not options.shards)
    cluster = Cluster(case)
    found: dict[str, list[float]] = {method: [] for method in COMPARED}
    for seed in range(*options.seeds):
        for method in COMPARED:
            found[method].append(cluster.accuracy(method, seed))
        shown = ", ".join(f"{method} {of_seeds[-1]:.4f}" for method, of_seeds in found.items())
        print(f"{options.case}, seed {seed}: {shown}", flush=True)
    for line in compare(found, options.trials):
        print(line)


if __name__ == "__main__":
    main()

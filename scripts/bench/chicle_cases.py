"""What `trepak bench chicle` trains, on which data sets, and where tasks run."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from trepak.models.images import cifar_shaped, fashion_shaped
from trepak.models.linear import criteo_shaped, higgs_shaped
from trepak.scripts.bench.chicle_local_sgd import LocalSgdTrainer, Schedule
from trepak.tf_plugins.chicle.cocoa import CocoaTrainer, Problem, Problems
from trepak.tf_plugins.chicle.cutting import Cutting
from trepak.tf_plugins.chicle.drawing import DRAWN
from trepak.tf_plugins.chicle.trainer import Trainer
from trepak.tf_plugins.chicle.virtual import PARTS, Change, Quota, all_samples, scaling

MICRO_TASKS = (16, 24, 32, 64)  # section 5.1
PARALLELISM = (2, 4, 8, *MICRO_TASKS)
NODES = 16
SEEDS = (0, 1, 2)  # of the chunks' places and the samples' order; the samples' own is 0
OTHER_UNITS = (0.5, 2.0)  # of the case's

STEPS, BATCH = 6, 8  # H and L of local SGD


class Samples(NamedTuple):
    """What is trained on, and what is not.

    Attributes:
        rows: one of each sample: features, or an image.
        classes: of each sample.
        test: rows and classes to test with.
    """

    rows: Any
    classes: np.ndarray
    test: tuple[Any, np.ndarray]


@dataclass(frozen=True)
class Case:
    """A training.

    Attributes:
        algorithm: one of `ALGORITHMS`.
        name: of the data set.
        make: makes as many samples as it is told, of a seed.
        samples: of the data set.
        chunk_bytes: the size of a chunk; chosen so that there are about as many as in the paper.
        goal: where a training has come to its end, of what the algorithm tells.
        unit: the seconds of a time unit: of what one of 16 tasks does in an iteration, on an even
            node. Most steps of scaling happen before uni-tasks are at the goal.
        regularization: CoCoA's λ, as a part of the number of samples.
        rate: local SGD's learning rate, of a single task.
        test: further samples, to test with.
        most_iterations: after so many a training ends anyway.
    """

    algorithm: str
    name: str
    make: Callable[[int, int], tuple[Any, np.ndarray]]
    samples: int
    chunk_bytes: int
    goal: float
    unit: float = 10.0
    regularization: float = 0.01
    rate: float = 0.002
    test: int = 0
    most_iterations: int = 300

    def drawn(self) -> Samples:
        """Returns its samples."""
        rows, classes = self.make(self.samples + self.test, 0)
        count = self.samples
        return Samples(rows[:count], classes[:count], (rows[count:], classes[count:]))

    def taken(self, tasks: int) -> int:
        """Returns how many samples so many tasks take together in an iteration."""
        return ALGORITHMS[self.algorithm].quota(self)(self.samples, tasks)

    @property
    def usual(self) -> int:
        """The samples that 16 tasks take in an iteration: those of 16 time units."""
        return self.taken(PARTS)


class Trial(NamedTuple):
    """One of a case's trainings."""

    case: Case
    samples: Samples
    seed: int


class Prepared(NamedTuple):
    """What a training begins with."""

    cutting: Cutting
    trainer: Trainer


@dataclass(frozen=True)
class Algorithm:
    """How a case is trained, and what is told of it.

    Attributes:
        prepare: returns a trial's chunks and its trainer.
        told: returns by iteration what a trainer had reached before it: with the goal, it ends.
        value: the name of that.
        quota: returns how many samples a case's tasks take in an iteration.
        balanced_after: iterations after which the load is to be balanced, as in the paper.
        quick: what is other in a case's quick run.
        most_of_best: the target of uni-tasks' time, as a part of the best micro-tasks'.
    """

    prepare: Callable[[Trial], Prepared]
    told: Callable[[Any], Sequence[float]]
    value: str
    quota: Callable[[Case], Quota]
    balanced_after: int
    quick: Mapping[str, Any]
    most_of_best: float


def _cocoa(trial: Trial) -> Prepared:
    """Returns those of a support vector machine, as in section 5.1."""
    case, (rows, classes, _), seed = trial
    count, features = rows.shape
    problem = Problem("hinge", c=1 / (case.regularization * count), positive=1.0)
    problems = Problems((problem,), features)
    fields = {"x": rows, "y": classes.astype(np.float64), "weight": np.ones(count)}
    cutting = Cutting(fields, problems.state(), case.chunk_bytes)
    trainer = CocoaTrainer(problems, case.goal, case.most_iterations, seed)
    return Prepared(cutting, trainer)


def _schedule(case: Case) -> Schedule:
    return Schedule(case.samples, STEPS, BATCH)


def _local_sgd(trial: Trial) -> Prepared:
    """Returns those of a small convolutional network, as in section 5.1."""
    case, (images, classes, test), seed = trial
    cutting = Cutting({"x": images, "y": classes}, [DRAWN], case.chunk_bytes)
    options = (case.rate, case.goal, case.most_iterations, seed)
    return Prepared(cutting, LocalSgdTrainer(_schedule(case), test, *options))


ALGORITHMS = {
    "cocoa": Algorithm(
        _cocoa,
        told=lambda trainer: trainer.gaps,
        value="relative duality gap",
        quota=lambda case: all_samples,
        balanced_after=10,
        quick={"samples": 20_000, "goal": 0.05},
        most_of_best=1.0,
    ),
    "local_sgd": Algorithm(
        _local_sgd,
        told=lambda trainer: trainer.errors,
        value="test error",
        quota=lambda case: _schedule(case).quota,
        balanced_after=50,
        quick={"samples": 1536, "test": 512, "goal": 0.7, "rate": 0.006},
        most_of_best=1.05,
    ),
}

# Chunks of 16 images: all numbers of micro-tasks divide the 384 chunks of a data set.
_IMAGES: Mapping[str, Any] = {"samples": 6144, "test": 1024, "most_iterations": 2000, "unit": 1.5}

CASES = (
    Case("cocoa", "higgs", higgs_shaped, chunk_bytes=1 << 15, samples=200_000, goal=1e-3),
    # With λ = 0.01 as well, four iterations are enough: fewer than there are steps of scaling.
    Case(
        *("cocoa", "criteo", criteo_shaped, 200_000, 1 << 15),
        goal=5e-5,
        regularization=0.003,
    ),
    Case("local_sgd", "cifar", cifar_shaped, chunk_bytes=51_200, goal=0.35, **_IMAGES),
    Case("local_sgd", "fashion", fashion_shaped, chunk_bytes=14_000, goal=0.1, **_IMAGES),
)


@dataclass(frozen=True)
class Scenario:
    """Where tasks run.

    Attributes:
        name: of it.
        first: nodes at the beginning.
        last: nodes in the end.
        slowness: by node, of all that there are at any time.
    """

    name: str
    first: int
    last: int
    slowness: tuple[float, ...] = (1.0,) * NODES

    @property
    def changes(self) -> list[Change]:
        """When nodes come and go."""
        return scaling(self.first, self.last)

    def nodes_at(self, second: float) -> int:
        """Returns how many nodes there are."""
        change = 2 if self.last > self.first else -2
        return self.first + change * sum(one.second <= second for one in self.changes)


SCENARIOS = (
    Scenario("scale_in", NODES, 2),  # section 5.3
    Scenario("scale_out", 2, NODES),
    Scenario("uneven", NODES, NODES, (1.0,) * 8 + (1.5,) * 8),  # section 5.4
)

# Four nodes at 1.2 GHz among twelve at 2.6 (section 5.4, Figure 6).
SLOWED = Scenario("slowed", NODES, NODES, (1.0,) * 12 + (2.6 / 1.2,) * 4)

"""What `trepak bench chicle` trains, on which data sets, and where tasks run."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from trepak.models.linear import criteo_shaped, higgs_shaped
from trepak.tf_plugins.chicle.cocoa import CocoaTrainer, Problem, Problems
from trepak.tf_plugins.chicle.cutting import Cutting
from trepak.tf_plugins.chicle.trainer import Trainer
from trepak.tf_plugins.chicle.virtual import Change, scaling

MICRO_TASKS = (16, 24, 32, 64)  # section 5.1
PARALLELISM = (2, 4, 8, *MICRO_TASKS)
NODES = 16
SEEDS = (0, 1, 2)  # of the chunks' places and the samples' order; the samples' own is 0
OTHER_UNITS = (5.0, 20.0)  # seconds

Samples = tuple[Any, np.ndarray]  # rows and classes


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
        unit: the seconds of a time unit: of a sixteenth of the samples on an even node. Most steps
            of scaling happen before uni-tasks are at the goal.
        regularization: λ, as a part of the number of samples.
        most_iterations: after so many a training ends anyway.
    """

    algorithm: str
    name: str
    make: Callable[[int, int], Samples]
    samples: int
    chunk_bytes: int
    goal: float
    unit: float = 10.0
    regularization: float = 0.01
    most_iterations: int = 300


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
    """

    prepare: Callable[[Trial], Prepared]
    told: Callable[[Any], Sequence[float]]
    value: str


def _cocoa(trial: Trial) -> Prepared:
    """Returns those of a support vector machine, as in section 5.1."""
    case, (rows, classes), seed = trial
    count, features = rows.shape
    problem = Problem("hinge", c=1 / (case.regularization * count), positive=1.0)
    problems = Problems((problem,), features)
    fields = {"x": rows, "y": classes.astype(np.float64), "weight": np.ones(count)}
    cutting = Cutting(fields, problems.state(), case.chunk_bytes)
    trainer = CocoaTrainer(problems, case.goal, case.most_iterations, seed)
    return Prepared(cutting, trainer)


ALGORITHMS = {
    "cocoa": Algorithm(_cocoa, lambda trainer: trainer.gaps, "relative duality gap"),
}

CASES = (
    Case("cocoa", "higgs", higgs_shaped, 200_000, 1 << 15, goal=1e-3),
    # With λ = 0.01 as well, four iterations are enough: fewer than there are steps of scaling.
    Case(
        *("cocoa", "criteo", criteo_shaped, 200_000, 1 << 15),
        goal=5e-5,
        regularization=0.003,
    ),
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
BALANCED_AFTER = 10  # iterations

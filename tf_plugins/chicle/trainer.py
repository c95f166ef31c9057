"""The two classes that an application writes: a trainer, and the solver of each task.

Chicle, section 4.2. Each rank has a trainer, which makes the same model of the same updates; its
solvers work on the chunks of the tasks that the rank has.
"""

from __future__ import annotations

# ruff: noqa: B027  (some methods are for those that have something to do there)
import abc
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from trepak.tf_plugins.chicle.chunk_store import ChunkStore
from trepak.tf_plugins.chicle.cluster import Cluster


@dataclass(frozen=True)
class Iteration:
    """What a solver knows of an iteration.

    Attributes:
        number: from 0 on.
        tasks: how many tasks work in it, the data parallelism.
        share: of its usual samples, how much the task takes; below 1 where it falls behind.
    """

    number: int
    tasks: int
    share: float = 1.0


@dataclass(frozen=True)
class TaskMetrics:
    """What a task has done in an iteration.

    Attributes:
        task: its number.
        chunks: that it had.
        local_samples: that it had.
        samples: that it has processed.
        seconds: that it took.
    """

    task: int
    chunks: int
    local_samples: int
    samples: int
    seconds: float


@dataclass(frozen=True)
class IterationMetrics:
    """What all tasks have done in an iteration.

    Attributes:
        iteration: its number.
        tasks: by task.
        values: what the trainer tells, such as a duality gap.
    """

    iteration: int
    tasks: dict[int, TaskMetrics]
    values: dict[str, Any] = field(default_factory=dict)


class Solver(abc.ABC):
    """One task's part of each iteration. It may use all cores of its node.

    Attributes:
        store: the task's chunks, which are its own during `solve`.
    """

    def __init__(self, store: ChunkStore) -> None:
        """Makes it for the chunks of one task."""
        self.store = store

    @abc.abstractmethod
    def solve(
        self, model: Sequence[np.ndarray], iteration: Iteration
    ) -> tuple[list[np.ndarray], int]:
        """Returns the task's update of a model, and how many samples it has processed.

        The update's arrays are the trainer's from then on: the solver does not write to them again.

        Args:
            model: as the trainer has it; not to be changed.
            iteration: which one.
        """

    def chunks_changed(self, added: Sequence[int], removed: Sequence[int]) -> None:
        """Hears that chunks have come and gone between iterations; by their ids."""


class Trainer(abc.ABC):
    """Holds the model, and merges what the solvers make of it."""

    @abc.abstractmethod
    def solver(self, task: int, store: ChunkStore) -> Solver:
        """Returns the solver of a new task."""

    @abc.abstractmethod
    def no_update(self) -> list[np.ndarray]:
        """Returns the update of a rank without tasks: zeros, of the shapes of any other."""

    @abc.abstractmethod
    def model(self) -> list[np.ndarray] | None:
        """Returns what the next iteration begins from; None: training is over."""

    @abc.abstractmethod
    def merge(self, updates: list[np.ndarray], iteration: Iteration) -> None:
        """Takes the sums of all tasks' updates.

        Args:
            updates: the sums over tasks of what solvers returned.
            iteration: which one.
        """

    def metrics(self) -> dict[str, Any]:
        """Returns what to show and to tell policies of the last iteration."""
        return {}

    def conclude(self, solvers: Sequence[Solver], cluster: Cluster) -> None:
        """Is called on all ranks when `model` has returned None; training goes on if it changes.

        Args:
            solvers: of this rank's tasks.
            cluster: the ranks.
        """

    def begin(self, cluster: Cluster) -> None:
        """Is called on all ranks before an elastic training reads its samples."""

    def save(self) -> dict[str, np.ndarray]:
        """Returns all that the training goes on from, by names.

        A rank that joins an elastic training is given it, and a failure leads back to it.
        """
        name = type(self).__name__
        raise TypeError(f"{name} can't train in an elastic job: give it save() and load().")

    def load(self, saved: dict[str, np.ndarray]) -> None:
        """Goes on from what `save` returned, on this rank or on another one."""
        name = type(self).__name__
        raise TypeError(f"{name} can't train in an elastic job: give it save() and load().")

    def recover(self, solvers: Sequence[Solver], cluster: Cluster) -> None:
        """Is called on all ranks after `load`, where the state of some lost chunks is zeros again.

        Args:
            solvers: of this rank's tasks.
            cluster: the ranks.
        """

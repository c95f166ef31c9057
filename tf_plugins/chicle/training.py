"""The iterations of a training, and what the scheduler does between them (Chicle, section 4.1)."""

from __future__ import annotations

import dataclasses
import os
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np

from trepak.tf_plugins.chicle import reporting
from trepak.tf_plugins.chicle.cluster import Cluster, OneProcess
from trepak.tf_plugins.chicle.moving import Tasks
from trepak.tf_plugins.chicle.policy import Event, Policy, Share
from trepak.tf_plugins.chicle.scheduling import Scheduler
from trepak.tf_plugins.chicle.trainer import (
    Iteration,
    IterationMetrics,
    Solver,
    TaskMetrics,
    Trainer,
)

Clock = Callable[[int, int, float], float]


def wall_clock(task: int, samples: int, seconds: float) -> float:
    """Returns how long a task took, as it was measured."""
    return seconds


class Training:
    """A trainer, the tasks of this rank with their solvers, and the policies.

    Attributes:
        trainer: of this rank; all ranks' have the same model.
        tasks: the stores of this rank's tasks, and who has which chunk.
        last: what was done in the last iteration; None before the first one.
        iteration: the number of the next one.
        told: by rank, what `tell` returned in the last iteration.
    """

    def __init__(
        self,
        trainer: Trainer,
        tasks: Tasks,
        cluster: Cluster | None = None,
        policies: Sequence[Policy] = (),
        clock: Clock = wall_clock,
        first: int = 0,
        tell: Callable[[], Any] = lambda: None,
    ) -> None:
        """Begins; the chunks are with their tasks.

        Args:
            trainer: this rank's.
            tasks: this rank's, with their chunks.
            cluster: this process alone by default.
            policies: what decides between iterations; rank 0's are asked.
            clock: gives the seconds that a task took for so many samples, of those measured.
            first: the number of the first iteration.
            tell: returns what this rank tells all others in an iteration, of what JSON can hold.
        """
        self.trainer, self.tasks = trainer, tasks
        self._cluster = cluster or OneProcess()
        self._clock = clock
        self._solvers = {task: trainer.solver(task, store) for task, store in tasks.stores.items()}
        self.iteration = first
        self._tell = tell
        self.told: list[Any] = []
        self._has_ended = False
        self._shares: dict[int, float] = {}
        self.last: IterationMetrics | None = None
        # Last, as they start threads.
        self._scheduler = Scheduler(tasks, self._cluster, policies)
        self._threads = ThreadPoolExecutor(os.cpu_count(), "trepak task")

    def __enter__(self) -> Training:
        """Returns this; its end ends the threads."""
        return self

    def __exit__(self, *_: object) -> None:
        """Ends the threads of tasks and policies."""
        self._has_ended = True
        self._scheduler.close()
        self._threads.shutdown()

    @property
    def solvers(self) -> list[Solver]:
        """Those of this rank's tasks that have chunks."""
        return [self._solvers[task] for task, store in self.tasks.stores.items() if store.ids]

    def notify(self, event: Event) -> None:
        """Tells policies of an event, once the iteration under way is over; from any thread."""
        self._scheduler.notify(event)

    def run(self, after: Callable[[IterationMetrics], Any] | None = None) -> None:
        """Iterates until the trainer has no model to go on from.

        Args:
            after: is called after each iteration, when chunks have moved.
        """
        while (model := self._model()) is not None:
            metrics = self.iterate(model)
            if after is not None:
                after(metrics)

    def _model(self) -> list[np.ndarray] | None:
        if self.trainer.model() is None:
            self.trainer.conclude(self.solvers, self._cluster)
        return self.trainer.model()

    def iterate(self, model: list[np.ndarray]) -> IterationMetrics:
        """Has all tasks solve, merges what they made, and moves what policies have decided.

        Raises:
            LedgerError: a chunk has no owner, or several.
            ValueError: a solver of another rank, or a policy, has failed; on that rank, its error.
            HorovodInternalError: another rank has died or left.
            RuntimeError: the training has ended.
        """
        if self._has_ended:
            raise RuntimeError("this training has ended: make another one.")
        self._scheduler.tell(self.last)
        iteration = Iteration(self.iteration, len(self.tasks.working))
        updates, facts = self._solved([_read_only(array) for array in model], iteration)
        self.trainer.merge(self._cluster.sum(updates), iteration)
        done, plan = reporting.read(facts)
        self.last = IterationMetrics(self.iteration, done, self.trainer.metrics())
        self.told = [fact["told"] for fact in facts]
        self._carry_out(plan)
        self.iteration += 1
        return self.last

    def _solved(
        self, model: list[np.ndarray], iteration: Iteration
    ) -> tuple[list[np.ndarray], list[Any]]:
        """Returns the sums of this rank's updates, and what all ranks tell of their tasks."""
        working = [task for task, store in self.tasks.stores.items() if store.ids]

        def solve() -> tuple[list[list[np.ndarray]], dict[str, Any]]:
            solved = list(self._threads.map(lambda t: self._solve(t, model, iteration), working))
            done = [metrics for _, metrics in solved]
            report = reporting.report(done, self._scheduler)
            return [made for made, _ in solved], {**report, "told": self._tell()}

        made, facts = self._cluster.together(solve, f"iteration {self.iteration}")
        parts = zip(*(made or [self.trainer.no_update()]), strict=True)
        return [_summed(some) for some in parts], facts

    def _solve(
        self, task: int, model: list[np.ndarray], iteration: Iteration
    ) -> tuple[list[np.ndarray], TaskMetrics]:
        store = self.tasks.stores[task]
        mine = dataclasses.replace(iteration, share=self._shares.get(task, 1.0))
        begin = time.perf_counter()
        with store.iteration():
            update, samples = self._solvers[task].solve(model, mine)
        samples = int(samples)
        seconds = float(self._clock(task, samples, time.perf_counter() - begin))
        return update, TaskMetrics(task, len(store.ids), store.samples, samples, seconds)

    def _carry_out(self, plan: dict[str, Any]) -> None:
        decided = self._scheduler.carry_out(plan)
        self._shares = {one.task: one.share for one in decided if isinstance(one, Share)}
        for task in set(self._solvers) - set(self.tasks.stores):
            del self._solvers[task]
        for task in set(self.tasks.stores) - set(self._solvers):
            self._solvers[task] = self.trainer.solver(task, self.tasks.stores[task])
        for task, (added, removed) in self.tasks.take_changes().items():
            if task in self._solvers:
                self._solvers[task].chunks_changed(added, removed)


def _summed(parts: Sequence[np.ndarray]) -> np.ndarray:
    """Returns the sum of the tasks' parts; np.sum would first copy all of them side by side."""
    if len(parts) == 1:
        return parts[0]
    total = np.array(parts[0])
    for part in parts[1:]:
        total += part
    return total


def _read_only(array: np.ndarray) -> np.ndarray:
    """Returns a view that a solver can't write to: the model is all tasks'."""
    view = array.view()
    view.flags.writeable = False
    return view

"""The iterations of a training, and what the scheduler does between them (Chicle, section 4.1)."""

from __future__ import annotations

import dataclasses
import os
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np

from trepak.tf_plugins.chicle.cluster import Cluster, OneProcess
from trepak.tf_plugins.chicle.moving import Tasks
from trepak.tf_plugins.chicle.policy import Event, Policy, Share
from trepak.tf_plugins.chicle.scheduling import Scheduler
from trepak.tf_plugins.chicle.trainer import Iteration, IterationMetrics, TaskMetrics, Trainer

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
    """

    def __init__(
        self,
        trainer: Trainer,
        tasks: Tasks,
        cluster: Cluster | None = None,
        policies: Sequence[Policy] = (),
        clock: Clock = wall_clock,
    ) -> None:
        """Begins; the chunks are with their tasks.

        Args:
            trainer: this rank's.
            tasks: this rank's, with their chunks.
            cluster: this process alone by default.
            policies: what decides between iterations; rank 0's are asked.
            clock: gives the seconds that a task took for so many samples, of those measured.
        """
        self.trainer, self.tasks = trainer, tasks
        self._cluster = cluster or OneProcess()
        self._clock = clock
        self._scheduler = Scheduler(tasks, self._cluster, policies)
        self._solvers = {task: trainer.solver(task, store) for task, store in tasks.stores.items()}
        self._iteration = 0
        self._shares: dict[int, float] = {}
        self.last: IterationMetrics | None = None
        self._threads = ThreadPoolExecutor(os.cpu_count(), "trepak task")

    def __enter__(self) -> Training:
        """Returns this; its end ends the threads."""
        return self

    def __exit__(self, *_: object) -> None:
        """Ends the threads of tasks and policies."""
        self._scheduler.close()
        self._threads.shutdown()

    def notify(self, event: Event) -> None:
        """Tells policies of an event, once the iteration under way is over; from any thread."""
        self._scheduler.notify(event)

    def run(self, after: Callable[[IterationMetrics], Any] | None = None) -> None:
        """Iterates until the trainer has no model to go on from.

        Args:
            after: is called after each iteration, when chunks have moved.
        """
        while (model := self.trainer.model()) is not None:
            metrics = self.iterate(model)
            if after is not None:
                after(metrics)

    def iterate(self, model: list[np.ndarray]) -> IterationMetrics:
        """Has all tasks solve, merges what they made, and moves what policies have decided.

        Raises:
            LedgerError: a chunk has no owner, or several.
            HorovodInternalError: another rank has died or left.
        """
        self._scheduler.tell(self.last)
        working = [task for task, store in self.tasks.stores.items() if store.ids]
        count = len(self.tasks.working)
        solved = list(self._threads.map(lambda task: self._solve(task, model, count), working))
        facts = self._cluster.gather(
            {
                "tasks": [dataclasses.asdict(metrics) for _, metrics in solved],
                "plan": self._scheduler.plan(),
            },
            f"iteration {self._iteration}",
        )
        made = [update for update, _ in solved] or [self.trainer.no_update()]
        updates = [_summed(parts) for parts in zip(*made, strict=True)]
        iteration = Iteration(self._iteration, count)
        self.trainer.merge(self._cluster.sum(updates), iteration)
        done = {m["task"]: TaskMetrics(**m) for fact in facts for m in fact["tasks"]}
        self.last = IterationMetrics(self._iteration, done, self.trainer.metrics())
        self._carry_out(facts[0]["plan"])
        self._iteration += 1
        return self.last

    def _solve(
        self, task: int, model: list[np.ndarray], count: int
    ) -> tuple[list[np.ndarray], TaskMetrics]:
        store = self.tasks.stores[task]
        iteration = Iteration(self._iteration, count, self._shares.get(task, 1.0))
        begin = time.perf_counter()
        with store.iteration():
            update, samples = self._solvers[task].solve(model, iteration)
        seconds = self._clock(task, samples, time.perf_counter() - begin)
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
    total = np.array(parts[0])
    for part in parts[1:]:
        total += part
    return total

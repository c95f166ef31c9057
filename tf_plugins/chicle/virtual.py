"""Virtual time: how long iterations would take on nodes that are not there (Chicle, section 5.1).

Epochs to a goal depend on which task has which samples, not on where it runs: all tasks run in one
process, and times follow from the samples. Uni-tasks and micro-tasks are two ways to place the same
tasks: a task for each node, or a fixed number of tasks on as many nodes as there are.
"""

from __future__ import annotations

import collections
import heapq
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from trepak.tf_plugins.chicle.policy import Event, TasksJoined, TasksLeaving
from trepak.tf_plugins.chicle.trainer import IterationMetrics
from trepak.tf_plugins.chicle.training import Training

PARTS = 16  # the paper's time unit: a task takes it for a sixteenth of all samples

Quota = Callable[[int, int], int]


def all_samples(local: int, tasks: int) -> int:
    """Returns how many samples a task processes in an iteration that is a pass over all of them.

    Args:
        local: samples that it has.
        tasks: how many tasks work in the iteration.
    """
    return local


def shortest_schedule(tasks: int, slowness: Sequence[float]) -> list[int]:
    """Returns how many of equal tasks each node takes, so that the last one ends soonest.

    Each task goes to the node that would end it first, which is optimal for equal tasks.

    Args:
        tasks: how many.
        slowness: by node, how long a task takes there.
    """
    counts = [0] * len(slowness)
    ends = [(slow, node) for node, slow in enumerate(slowness)]
    heapq.heapify(ends)
    for _ in range(tasks):
        _, node = ends[0]
        counts[node] += 1
        heapq.heapreplace(ends, ((counts[node] + 1) * slowness[node], node))
    return counts


def micro_task_units(tasks: int, slowness: Sequence[float]) -> float:
    """Returns the time units of an iteration of micro-tasks: ⌈K/N⌉·16/K on N even nodes.

    It is also the shortest iteration of uni-tasks with K whole chunks.

    Args:
        tasks: K, of as many samples each.
        slowness: by node, how many units it takes for a sixteenth of the samples.
    """
    counts = shortest_schedule(tasks, slowness)
    longest = max(count * slow for count, slow in zip(counts, slowness, strict=True))
    return longest * PARTS / tasks


def uni_task_units(slowness: Sequence[float]) -> float:
    """Returns the time units of a balanced iteration of uni-tasks: 16/N on N even nodes.

    Args:
        slowness: by node, how many units it takes for a sixteenth of the samples.
    """
    return PARTS / sum(1 / slow for slow in slowness)


class VirtualNodes:
    """Nodes, how slow each is, and which tasks it has.

    Attributes:
        placement: by task, its node.
        slowness: by node, how many time units it takes for a sixteenth of all samples.
    """

    def __init__(
        self,
        samples: int,
        unit: float,
        slowness: Mapping[int, float],
        micro_tasks: int | None = None,
    ) -> None:
        """Places tasks on nodes.

        Args:
            samples: of all tasks together, in an iteration.
            unit: the seconds of a time unit.
            slowness: by node; 1: a sixteenth of these samples takes a time unit.
            micro_tasks: how many, from 0 on, in the shortest schedule of equal tasks; None: each
                node has a task of its number.
        """
        self.slowness = dict(slowness)
        self._second = unit * PARTS / samples  # of a sample
        nodes = list(self.slowness)
        if micro_tasks is None:
            counts = [1] * len(nodes)
            tasks: Iterable[int] = nodes
        else:
            counts = shortest_schedule(micro_tasks, list(self.slowness.values()))
            tasks = range(micro_tasks)
        places = [node for node, count in zip(nodes, counts, strict=True) for _ in range(count)]
        self.placement = dict(zip(tasks, places, strict=True))

    def clock(self, task: int, samples: int, seconds: float = 0.0) -> float:
        """Returns the virtual seconds of a task; a clock for `Training`.

        Args:
            task: which one.
            samples: that it has processed.
            seconds: that were measured, which don't count.

        Raises:
            KeyError: no node has the task.
        """
        return samples * self._second * self.slowness[self.placement[task]]

    def length(self, seconds: Mapping[int, float]) -> float:
        """Returns the seconds of an iteration: of the node that works longest.

        Args:
            seconds: by task, what it takes.
        """
        of_node: dict[int, float] = collections.defaultdict(float)
        for task, took in seconds.items():
            of_node[self.placement[task]] += took
        return max(of_node.values())


@dataclass(frozen=True)
class Change:
    """What a resource manager does at a moment.

    Attributes:
        second: of virtual time.
        event: that the policies hear of.
    """

    second: float
    event: Event


def scaling(first: int, last: int, step: int = 2, period: float = 20.0) -> list[Change]:
    """Returns the paper's elastic scaling: so many nodes more or less, again and again.

    Args:
        first: nodes at the beginning, numbered from 0 on.
        last: nodes in the end; the last numbers come and go.
        step: nodes that come or go at a time.
        period: seconds between two changes, and before the first.
    """
    kind = TasksJoined if last > first else TasksLeaving
    edges = range(first, last, step if last > first else -step)
    found = []
    for place, edge in enumerate(edges, 1):
        there = min(edge + step, last) if last > first else max(edge - step, last)
        low, high = sorted((edge, there))
        found.append(Change(place * period, kind(tuple(range(low, high)))))
    return found


class VirtualTime:
    """Runs a training in virtual time, and tells it of changes as they come.

    What happens in an iteration is in force as the next one begins: policies decide beside the
    iteration, and chunks move after it.

    Attributes:
        now: the virtual second.
        ends: by iteration, when it ended.
        tasks: by iteration, how many worked in it.
        epochs: by iteration, which part of all samples it has processed.
    """

    def __init__(
        self,
        training: Training,
        nodes: VirtualNodes,
        changes: Sequence[Change] = (),
        quota: Quota = all_samples,
    ) -> None:
        """Begins at second 0.

        Args:
            training: whose clock is that of the nodes.
            nodes: on which it runs.
            changes: in the order of time.
            quota: of the samples that a task has, and of the number of tasks, how many the task
                processes in an iteration.
        """
        self._training, self._nodes, self._quota = training, nodes, quota
        self._changes = collections.deque(changes)
        self.now = 0.0
        self.ends: list[float] = []
        self.tasks: list[int] = []
        self.epochs: list[float] = []

    def run(self) -> None:
        """Iterates until the trainer has no model to go on from."""
        self._announce()
        self._training.run(self._advance)

    def _advance(self, metrics: IterationMetrics) -> None:
        seconds = {task: done.seconds for task, done in metrics.tasks.items()}
        self.now += self._nodes.length(seconds)
        self.ends.append(self.now)
        self.tasks.append(len(metrics.tasks))
        processed = sum(done.samples for done in metrics.tasks.values())
        self.epochs.append(processed / sum(self._training.tasks.sizes))
        self._announce()

    def _announce(self) -> None:
        """Notifies the policies of what will have happened when the next iteration is over."""
        stores = self._training.tasks.stores
        local = {task: store.samples for task, store in stores.items() if store.ids}
        seconds = {
            task: self._nodes.clock(task, self._quota(samples, len(local)))
            for task, samples in local.items()
        }
        until = self.now + self._nodes.length(seconds)
        while self._changes and self._changes[0].second <= until:
            self._training.notify(self._changes.popleft().event)

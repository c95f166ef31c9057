"""Plans that are fixed before they run, in virtual time: data, model and hybrid parallelism.

A task is computed by one worker, or is a ring allreduce; it waits for others, and for what they
send. The bound of a plan is the largest over all workers, and links: what must come before the
first of its tasks, all of them, and what must come after the last one.
"""

from __future__ import annotations

import heapq
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial

from trepak.scripts.bench.fela_clock import LATENCY, RATE, Clock, Links, ring_bytes


@dataclass
class _Task:
    worker: int | None  # None: a ring
    seconds: float
    priority: float
    needs: dict[int, float]  # by task, bytes that it sends
    members: tuple[int, ...] = ()
    count: float = 0.0
    then: list[int] = field(default_factory=list)
    missing: int = 0

    @property
    def busy(self) -> float:
        """Seconds that it keeps its worker busy; a ring: its members' links."""
        if self.worker is not None:
            return self.seconds
        return ring_bytes(self.count, len(self.members)) / RATE

    @property
    def alone(self) -> float:
        """Seconds that it takes where nothing is in its way."""
        return self.busy + 2 * max(0, len(self.members) - 1) * LATENCY


class Plan:
    """Tasks that wait for each other; they must be added after those that they need."""

    def __init__(self, workers: int) -> None:
        """Begins without tasks."""
        self._workers = workers
        self._tasks: list[_Task] = []

    def compute(
        self, worker: int, seconds: float, needs: dict[int, float], priority: float = 0.0
    ) -> int:
        """Adds a task of a worker.

        Args:
            worker: who.
            seconds: how long it takes.
            needs: by task that must be over, the bytes that it sends to this one; none to itself.
            priority: of several that could begin, a worker takes the one with the least.

        Returns:
            Its number.
        """
        return self._add(_Task(worker, seconds, priority, needs))

    def ring(self, members: Sequence[int], count: float, needs: Sequence[int]) -> int:
        """Adds a ring allreduce of bytes, and returns its number."""
        task = _Task(None, 0.0, 0.0, dict.fromkeys(needs, 0.0), tuple(members), count)
        return self._add(task)

    def _add(self, task: _Task) -> int:
        for need in task.needs:
            self._tasks[need].then.append(len(self._tasks))
        self._tasks.append(task)
        return len(self._tasks) - 1

    def seconds(self, delays: Sequence[float] = ()) -> float:
        """Runs it.

        Args:
            delays: by worker, how much later it begins.
        """
        return _Run(self._tasks, delays or [0.0] * self._workers).end

    def bound(self) -> float:
        """Returns seconds that no run is shorter than; see above."""
        tasks = self._tasks
        heads, tails = [0.0] * len(tasks), [0.0] * len(tasks)
        for number, task in enumerate(tasks):
            for need, count in task.needs.items():
                ready = heads[need] + tasks[need].alone + _sent(count)
                heads[number] = max(heads[number], ready)
        for number in range(len(tasks) - 1, -1, -1):
            task = tasks[number]
            for need, count in task.needs.items():
                tails[need] = max(tails[need], _sent(count) + task.alone + tails[number])
        chains = (h + task.alone + t for h, task, t in zip(heads, tasks, tails, strict=True))
        found = max(chains, default=0.0)
        uses: dict[tuple[str, int], list[tuple[float, float, float]]] = defaultdict(list)
        for number, task in enumerate(tasks):
            own = heads[number], task.busy, tails[number]
            if task.worker is not None:
                uses["computing", task.worker].append(own)
            for member in task.members:
                uses["sending", member].append(own)
                uses["receiving", member].append(own)
            for need, count in task.needs.items():
                source = tasks[need].worker
                if count and source is not None and task.worker is not None:
                    begin = heads[need] + tasks[need].alone + LATENCY
                    sent = begin, count / RATE, task.alone + tails[number]
                    uses["sending", source].append(sent)
                    uses["receiving", task.worker].append(sent)
        for of_one in uses.values():
            firsts, busy, lasts = zip(*of_one, strict=True)
            found = max(found, min(firsts) + sum(busy) + min(lasts))
        return found


def _sent(count: float) -> float:
    return LATENCY + count / RATE if count else 0.0


class _Run:
    """One run of a plan's tasks."""

    def __init__(self, tasks: Sequence[_Task], delays: Sequence[float]) -> None:
        self._tasks = tasks
        self._clock = Clock()
        self._links = Links(self._clock, len(delays))
        self._ready: list[list[tuple[float, int]]] = [[] for _ in delays]
        self._busy = [True] * len(delays)
        for task in tasks:
            task.missing = len(task.needs)
        for worker, delay in enumerate(delays):
            self._clock.after(delay, partial(self._free, worker))
        for number, task in enumerate(tasks):
            if not task.needs:
                self._begin(number)
        self._clock.run()
        self.end = self._clock.now

    def _begin(self, number: int) -> None:
        task = self._tasks[number]
        if task.worker is None:
            self._links.reduce(task.members, task.count, partial(self._over, number))
            return
        heapq.heappush(self._ready[task.worker], (task.priority, number))
        if not self._busy[task.worker]:
            self._busy[task.worker] = True
            self._clock.after(0.0, partial(self._free, task.worker))

    def _free(self, worker: int | None) -> None:
        assert worker is not None
        self._busy[worker] = bool(self._ready[worker])
        if self._ready[worker]:
            _, number = heapq.heappop(self._ready[worker])
            self._clock.after(self._tasks[number].seconds, partial(self._computed, number))

    def _computed(self, number: int) -> None:
        self._over(number)
        self._free(self._tasks[number].worker)

    def _over(self, number: int) -> None:
        """What waits for it goes on, when what it sends is there."""
        task = self._tasks[number]
        for then in task.then:
            count = self._tasks[then].needs[number]
            target = self._tasks[then].worker
            if count and target is not None and target != task.worker:
                assert task.worker is not None
                there = partial(self._there, then)
                send = partial(self._links.send, task.worker, target, count, there)
                self._clock.after(LATENCY, send)
            else:
                self._there(then)

    def _there(self, number: int) -> None:
        task = self._tasks[number]
        task.missing -= 1
        if task.missing == 0:
            self._begin(number)

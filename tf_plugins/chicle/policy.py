"""Policies: what decides, from events and metrics, which chunks move (Chicle, section 4.5).

Each runs in a thread of its own, beside the iterations, on rank 0.
"""

from __future__ import annotations

import abc
import dataclasses
import threading
from collections.abc import Sequence
from dataclasses import dataclass

from trepak.tf_plugins.chicle.ledger import Ledger, Move
from trepak.tf_plugins.chicle.trainer import IterationMetrics


@dataclass(frozen=True)
class TasksJoined:
    """New tasks, which have no chunks yet."""

    tasks: tuple[int, ...]


@dataclass(frozen=True)
class TasksLeaving:
    """Tasks that were given notice: their chunks are to be elsewhere soon."""

    tasks: tuple[int, ...]


Event = TasksJoined | TasksLeaving


@dataclass(frozen=True)
class Share:
    """A task takes this part of its usual samples in the next iteration."""

    task: int
    share: float


Decision = Move | Share


@dataclass(frozen=True)
class Situation:
    """What a policy decides from.

    Attributes:
        ledger: who has which chunks; the policy's own copy.
        tasks: that take part, those that are leaving too.
        leaving: of them, those that must not get chunks.
        events: since the last situation.
        metrics: of the last iteration; None before the first one.
        sizes: by chunk, how many samples it has.
    """

    ledger: Ledger
    tasks: tuple[int, ...]
    leaving: frozenset[int]
    events: tuple[Event, ...]
    metrics: IterationMetrics | None
    sizes: Sequence[int]

    @property
    def staying(self) -> tuple[int, ...]:
        """The tasks that may get chunks."""
        return tuple(task for task in self.tasks if task not in self.leaving)


class Policy(abc.ABC):
    """Decides on its own; what several decide is carried out in the order of the policies."""

    @abc.abstractmethod
    def decide(self, situation: Situation) -> Sequence[Decision]:
        """Returns what is to be done between the next two iterations; called in its own thread."""


class PolicyThread:
    """Runs a policy beside the iterations."""

    def __init__(self, policy: Policy) -> None:
        """Starts the thread; `close` ends it."""
        self._policy = policy
        self._changed = threading.Condition()
        # Guarded by _changed.
        self._next: Situation | None = None
        self._is_busy = self._is_closed = False
        self._decided: list[Decision] = []
        self._failure: BaseException | None = None
        self._name = type(policy).__name__
        self._thread = threading.Thread(
            target=self._run, name=f"trepak policy {self._name}", daemon=True
        )
        self._thread.start()

    def tell(self, situation: Situation) -> None:
        """Hands it a situation; of those that wait it sees the newest, with all their events."""
        with self._changed:
            if self._next is not None:
                events = (*self._next.events, *situation.events)
                situation = dataclasses.replace(situation, events=events)
            self._next = situation
            self._changed.notify_all()

    def decisions(self, seconds: float) -> list[Decision]:
        """Returns what it has decided since the last call.

        Args:
            seconds: how long to wait for it, if it is still at work.

        Raises:
            RuntimeError: it has failed.
        """
        with self._changed:
            self._changed.wait_for(lambda: self._next is None and not self._is_busy, seconds)
            if self._failure is not None:
                raise RuntimeError(
                    f"the policy {self._name} has failed: {self._failure!r}"
                ) from self._failure
            decided, self._decided = self._decided, []
            return decided

    def close(self, seconds: float) -> None:
        """Ends the thread, or lets it end by itself if it is at work for longer than that."""
        with self._changed:
            self._is_closed, self._next = True, None
            self._changed.notify_all()
        self._thread.join(seconds)

    def _run(self) -> None:
        while (situation := self._taken()) is not None:
            decided: Sequence[Decision] = ()
            failure = None
            try:
                decided = self._policy.decide(situation)
            except BaseException as error:  # reaches the trainer with the next `decisions`
                failure = error
            with self._changed:
                self._decided += decided
                self._failure, self._is_busy = self._failure or failure, False
                self._changed.notify_all()

    def _taken(self) -> Situation | None:
        with self._changed:
            self._changed.wait_for(lambda: self._next is not None or self._is_closed)
            situation, self._next = self._next, None
            self._is_busy = situation is not None
            return situation

"""Policies: what decides, from events and metrics, which chunks move (Chicle, section 4.5).

Each runs in a thread of its own, beside the iterations, on rank 0.
"""

from __future__ import annotations

import abc
import queue
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
        self._situations: queue.SimpleQueue[Situation | None] = queue.SimpleQueue()
        self._answers: queue.SimpleQueue[Sequence[Decision] | BaseException] = queue.SimpleQueue()
        self._pending = 0
        name = f"trepak policy {type(policy).__name__}"
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def tell(self, situation: Situation) -> None:
        """Hands it a situation."""
        self._pending += 1
        self._situations.put(situation)

    def decisions(self, seconds: float) -> list[Decision]:
        """Returns what it has decided since the last call.

        Args:
            seconds: how long to wait for it, if it is still at work.

        Raises:
            RuntimeError: it has failed.
        """
        decided: list[Decision] = []
        while self._pending:
            try:
                answer = self._answers.get(timeout=seconds)
            except queue.Empty:
                break
            self._pending -= 1
            if isinstance(answer, BaseException):
                name = type(self._policy).__name__
                raise RuntimeError(f"the policy {name} has failed: {answer!r}") from answer
            decided += answer
        return decided

    def close(self) -> None:
        """Ends the thread."""
        self._situations.put(None)
        self._thread.join()

    def _run(self) -> None:
        while (situation := self._situations.get()) is not None:
            try:
                self._answers.put(self._policy.decide(situation))
            except BaseException as error:  # reaches the trainer with the next `decisions`
                self._answers.put(error)

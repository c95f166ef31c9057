"""The scheduler: owns chunks between iterations, and carries out what policies decide."""

from __future__ import annotations

import queue
from collections.abc import Sequence
from typing import Any

from trepak.tf_plugins.chicle.cluster import Cluster
from trepak.tf_plugins.chicle.ledger import Ledger, LedgerError, Move
from trepak.tf_plugins.chicle.moving import Tasks
from trepak.tf_plugins.chicle.policy import (
    Decision,
    Event,
    Policy,
    PolicyThread,
    Share,
    Situation,
    TasksJoined,
    TasksLeaving,
)
from trepak.tf_plugins.chicle.trainer import IterationMetrics

# Seconds for a policy that is still at work when an iteration is over. What it decides later is
# done after a later iteration.
_PATIENCE = 1.0


class Scheduler:
    """Asks rank 0's policies, beside an iteration, what all ranks do after it."""

    def __init__(self, tasks: Tasks, cluster: Cluster, policies: Sequence[Policy]) -> None:
        """Starts the policies' threads on rank 0; `close` ends them."""
        self._tasks, self._cluster = tasks, cluster
        own = policies if cluster.rank == 0 else ()
        self._policies = [PolicyThread(policy) for policy in own]
        self._events: queue.SimpleQueue[Event] = queue.SimpleQueue()
        self._told: list[Event] = []  # of the situation that policies decide from

    def notify(self, event: Event) -> None:
        """Tells policies of an event, as the next iteration begins; of rank 0, in any thread.

        Raises:
            ValueError: on another rank; or new tasks have chunks, or leaving ones are none.
        """
        if self._cluster.rank != 0:
            raise ValueError(f"rank {self._cluster.rank}: events are told to rank 0's training.")
        if isinstance(event, TasksJoined):
            wrong, how = set(event.tasks) & set(self._tasks.working), "there already"
        else:
            wrong, how = set(event.tasks) - set(self._tasks.ranks), "not there"
        if wrong:
            raise ValueError(f"{event}: task {min(wrong)} is {how}.")
        self._events.put(event)

    def tell(self, metrics: IterationMetrics | None) -> None:
        """Hands the policies what the last iteration has shown; they decide beside the next one."""
        tasks = self._tasks
        self._told = []
        while not self._events.empty():
            self._told.append(self._events.get())
        for event in self._told:
            self._take_note(event)
        for policy in self._policies:
            policy.tell(
                Situation(
                    Ledger.of(tasks.ledger.owners),
                    tuple(tasks.ranks),
                    frozenset(tasks.leaving),
                    tuple(self._told),
                    metrics,
                    tasks.sizes,
                )
            )

    def plan(self) -> dict[str, Any]:
        """Returns what this rank's policies have decided, for all ranks: what JSON can hold."""
        decided = [one for policy in self._policies for one in policy.decisions(_PATIENCE)]
        sound = _sound(decided, self._tasks)
        return {
            "joined": {str(task): rank for task, rank in self._tasks.ranks.items()},
            "moves": [list(map(int, one)) for one in sound if isinstance(one, Move)],
            "shares": [[int(s.task), float(s.share)] for s in sound if isinstance(s, Share)],
            "leaving": sorted(self._tasks.leaving),
        }

    def carry_out(self, plan: dict[str, Any]) -> list[Decision]:
        """Moves chunks as rank 0 has planned, and lets go of tasks that have none left.

        Returns:
            All decisions.

        Raises:
            LedgerError: the ledgers of ranks are not the same, or a chunk has no owner.
        """
        for task, rank in plan["joined"].items():
            if int(task) not in self._tasks.ranks:
                self._tasks.add(int(task), rank, rank == self._cluster.rank)
        moves = [Move(*move) for move in plan["moves"]]
        self._tasks.leaving = set(plan["leaving"])
        if moves:
            self._tasks.move(moves, self._cluster)
            digests = self._cluster.gather(self._tasks.ledger.digest(), "the ledger")
            if len(set(digests)) > 1:
                raise LedgerError(f"the ranks' ledgers differ after moves: {digests}.")
        for task in plan["leaving"]:
            if not self._tasks.ledger.chunks_of(task):
                self._tasks.drop(task)
        return [*moves, *(Share(*share) for share in plan["shares"])]

    def close(self) -> None:
        """Ends the policies' threads."""
        for policy in self._policies:
            policy.close(_PATIENCE)

    def _take_note(self, event: Event) -> None:
        if isinstance(event, TasksLeaving):
            self._tasks.leaving |= set(event.tasks)
        elif isinstance(event, TasksJoined):
            for task in set(event.tasks) - set(self._tasks.ranks):  # they are this rank's
                self._tasks.add(task, self._cluster.rank, is_here=True)


def _sound(decisions: Sequence[Decision], tasks: Tasks) -> list[Decision]:
    """Returns the decisions that can be carried out one after the other.

    Policies decide without knowing of each other: a chunk that one has moved is no longer where the
    next one takes it from.
    """
    ledger = Ledger.of(tasks.ledger.owners)
    sound: list[Decision] = []
    for one in decisions:
        if not isinstance(one, Move | Share):
            raise ValueError(f"a policy has decided {one!r}, which is neither a Move nor a Share.")
        if isinstance(one, Move):
            if one.target not in tasks.ranks or one.target in tasks.leaving:
                continue
            try:
                ledger.move(one)
            except LedgerError:
                continue
        sound.append(one)
    return sound

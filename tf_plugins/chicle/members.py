"""Who takes part in an elastic training, and who is to leave it soon.

The ranks tell each other after each iteration. A rank with notice first gives its chunks away; then
its host is withdrawn, and the next rendezvous is without it.
"""

from __future__ import annotations

import abc
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from horovod.common.exceptions import HostsUpdatedInterrupt

from trepak.tf_plugins.chicle.policy import TasksLeaving
from trepak.tf_plugins.chicle.training import Training

_PATIENCE = 20  # iterations that leaving tasks have to give their chunks away


class ResourceManager(abc.ABC):
    """What decides which hosts a job has.

    Attributes:
        host: this rank's.
    """

    host: str

    @abc.abstractmethod
    def notice(self) -> str | None:
        """Returns why this rank is to leave; None: it is not."""

    @abc.abstractmethod
    def withdraw(self) -> bool:
        """Asks that the next rendezvous be without this host; False: nobody can be asked."""

    @abc.abstractmethod
    def has_changed(self) -> bool:
        """Tells whether hosts have come or gone since the last rendezvous; rank 0 hears of it."""

    @abc.abstractmethod
    def expected_hosts(self) -> Mapping[str, int] | None:
        """Returns the hosts of the next rendezvous, with their slots; None: nobody knows."""


class Members:
    """What ranks tell each other of notices and hosts between two iterations."""

    def __init__(
        self, resources: ResourceManager, rank: int, number: int, say: Callable[[str], None]
    ) -> None:
        """Begins after a rendezvous.

        Args:
            resources: of this rank.
            rank: this one.
            number: of its task.
            say: shows a line; asked on rank 0.
        """
        self._resources, self._rank, self._number, self._say = resources, rank, number, say
        self._has_withdrawn = False
        self._waited = 0

    def tell(self) -> dict[str, Any]:
        """Returns what this rank tells the others, of what JSON can hold."""
        has_changed = self._rank == 0 and self._resources.has_changed()
        expected = self._resources.expected_hosts() if has_changed else None
        return {
            "task": self._number,
            "host": self._resources.host,
            "notice": self._resources.notice(),
            "has_changed": has_changed,
            "expected": None if expected is None else dict(expected),
        }

    def heed(self, told: Sequence[Mapping[str, Any]], training: Training) -> None:
        """Has tasks with notice give their chunks away, and lets ranks go that have none.

        Args:
            told: by rank.
            training: between two iterations.

        Raises:
            HostsUpdatedInterrupt: there is to be a rendezvous; on all ranks.
            RuntimeError: all ranks are to leave.
        """
        leaving = _leaving(told)
        tasks = training.tasks
        if leaving and not set(tasks.ranks) - set(leaving):
            why = next(iter(leaving.values()))
            raise RuntimeError(f"all ranks are to leave the job ({why}): the training ends here.")
        fresh = [task for task in leaving if task in tasks.ranks and task not in tasks.leaving]
        if fresh and self._rank == 0:
            for task in fresh:
                count = len(tasks.ledger.chunks_of(task))
                self._say(
                    f"after iteration {training.iteration}: rank {tasks.ranks[task]} on "
                    f"{told[tasks.ranks[task]]['host']} is to leave ({leaving[task]}); its {count} "
                    "chunks go to the others."
                )
            training.notify(TasksLeaving(tuple(fresh)))
        if self._resources.notice() and self._number not in tasks.ranks:
            self._withdraw()
        if told[0]["has_changed"]:
            self._meet_anew([task for task in leaving if task in tasks.ranks])

    def _withdraw(self) -> None:
        if not self._has_withdrawn:
            self._has_withdrawn = True
            self._resources.withdraw()

    def _meet_anew(self, still_there: Sequence[int]) -> None:
        """Goes to the rendezvous, once the leaving tasks have no chunks, or had time enough."""
        self._waited += 1
        if not still_there or self._waited > _PATIENCE:
            raise HostsUpdatedInterrupt(False)


def _leaving(told: Sequence[Mapping[str, Any]]) -> dict[int, str]:
    """Returns by task that is to leave why."""
    leaving = {one["task"]: one["notice"] for one in told if one["notice"]}
    expected = told[0]["expected"]
    if expected is not None:
        slots = dict(expected)
        for one in told:  # in the order of ranks: the first ones of a host keep their slots
            slots[one["host"]] = slots.get(one["host"], 0) - 1
            if slots[one["host"]] < 0:
                leaving.setdefault(one["task"], "its host is no longer listed")
    return leaving

"""Who takes part in an elastic training, and who is to leave it soon.

The ranks tell each other after each iteration. The host of a rank with notice is withdrawn, so that
the next rendezvous is without it; before, its chunks go to the others.
"""

from __future__ import annotations

import abc
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from horovod.common.exceptions import HostsUpdatedInterrupt

from trepak.tf_plugins.chicle.cluster import Cluster
from trepak.tf_plugins.chicle.elastic_scaling import handed_over
from trepak.tf_plugins.chicle.moving import Tasks
from trepak.tf_plugins.chicle.policy import TasksLeaving


class AllLeaveError(RuntimeError):
    """All ranks of a job were given notice, so that nobody can go on."""


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
    def withdraw(self, hosts: Sequence[str]) -> None:
        """Asks that the next rendezvous be without this host; may be called again and again.

        Args:
            hosts: of all ranks.
        """

    @abc.abstractmethod
    def has_changed(self) -> bool:
        """Tells whether hosts have come or gone since the last rendezvous; not all ranks hear."""

    @abc.abstractmethod
    def meet(self) -> None:
        """Hears that there is to be a rendezvous: what has changed is known."""

    @abc.abstractmethod
    def expected_hosts(self) -> Mapping[str, int] | None:
        """Returns the hosts of the next rendezvous, with their slots; None: nobody knows."""

    @abc.abstractmethod
    def is_over(self) -> bool:
        """Tells whether the job ends, since no host is left without notice."""


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
        self._announced: set[int] = set()

    def tell(self) -> dict[str, Any]:
        """Returns what this rank tells the others, of what JSON can hold."""
        has_changed = self._resources.has_changed()
        expected = self._resources.expected_hosts() if has_changed else None
        return {
            "task": self._number,
            "host": self._resources.host,
            "notice": self._resources.notice(),
            "has_changed": has_changed,
            "expected": None if expected is None else dict(expected),
            "is_over": self._resources.is_over(),
        }

    def heed(
        self,
        told: Sequence[Mapping[str, Any]],
        tasks: Tasks,
        cluster: Cluster,
        notify: Callable[[TasksLeaving], None] | None = None,
    ) -> None:
        """Withdraws hosts with notice; before a rendezvous their chunks go to those that stay.

        To be called on all ranks between two iterations.

        Args:
            told: by rank.
            tasks: this rank's, and where the others are.
            cluster: the ranks.
            notify: tells policies of tasks with notice; asked on rank 0.

        Raises:
            HostsUpdatedInterrupt: there is to be a rendezvous; on all ranks.
            AllLeaveError: all ranks are to leave; on all ranks.
        """
        leaving = _leaving(told)
        nobody_stays = not set(tasks.ranks) - set(leaving)
        if nobody_stays and any(one["is_over"] for one in told):
            raise AllLeaveError(f"all ranks are to leave the job ({_reasons(leaving)}).")
        present = sorted(task for task in leaving if task in tasks.ranks)
        fresh = [task for task in present if task not in self._announced]
        self._announced |= set(fresh)
        if fresh and self._rank == 0:
            self._announce(fresh, leaving, tasks)
            if notify is not None:
                notify(TasksLeaving(tuple(fresh)))
        if self._resources.notice():
            self._resources.withdraw([one["host"] for one in told])
        if any(one["has_changed"] for one in told):
            staying = [task for task in tasks.ranks if task not in leaving]
            if staying:
                tasks.move(handed_over(tasks.ledger, present, staying), cluster)
            self._resources.meet()
            raise HostsUpdatedInterrupt(False)

    def _announce(self, fresh: Sequence[int], reasons: Mapping[int, str], tasks: Tasks) -> None:
        for task in fresh:
            count = len(tasks.ledger.chunks_of(task))
            self._say(
                f"rank {tasks.ranks[task]} is to leave ({reasons[task]}): its {count} chunks go to "
                "the others."
            )


def _leaving(told: Sequence[Mapping[str, Any]]) -> dict[int, str]:
    """Returns by task that is to leave why."""
    noticed = [one for one in told if one["notice"] is not None]
    leaving = {one["task"]: f"{one['notice']} on {one['host']}" for one in noticed}
    for expected in [one["expected"] for one in told if one["expected"] is not None][:1]:
        slots = dict(expected)
        for one in told:  # in the order of ranks: the first ones of a host keep their slots
            slots[one["host"]] = slots.get(one["host"], 0) - 1
            if slots[one["host"]] < 0:
                leaving.setdefault(one["task"], f"{one['host']} is no longer listed")
    return leaving


def _reasons(leaving: Mapping[int, str]) -> str:
    return ", ".join(sorted(set(leaving.values())))

"""The rounds of an elastic job, each from one rendezvous to the next, of whatever is trained."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

from horovod.common.exceptions import HostsUpdatedInterrupt

from trepak.tf_plugins.chicle.changes import Changes
from trepak.tf_plugins.chicle.cluster import Arrays, Cluster
from trepak.tf_plugins.chicle.elastic_tasks import ElasticTasks, Joined
from trepak.tf_plugins.chicle.members import AllLeaveError, Members, ResourceManager
from trepak.tf_plugins.chicle.moving import Tasks
from trepak.tf_plugins.chicle.policy import TasksLeaving
from trepak.tf_plugins.chicle.supply import Cut, Supply
from trepak.tf_plugins.model.member_state import TERMINATED


class ElasticRounds:
    """When ranks commit, come and go, and what the user hears of it.

    Attributes:
        wants_commit: whether the ranks are to commit as soon as they can.
    """

    def __init__(
        self,
        cut: Cut,
        seed: int,
        commit_seconds: float,
        replicas: bool,
        say: Callable[[str], None],
    ) -> None:
        """Makes it; nothing is read yet.

        Args:
            cut: see `Supply`.
            seed: see `ElasticTasks`.
            commit_seconds: between two commits.
            replicas: see `ElasticTasks`.
            say: shows a line, on rank 0: one for each event.
        """
        self._tasks = ElasticTasks(Supply(cut), seed, replicas=replicas)
        self._changes, self._say = Changes(say), say
        self._commit_seconds, self.wants_commit = commit_seconds, False
        self._reached = 0  # the iteration that was under way when the last round ended

    @property
    def tasks(self) -> Tasks:
        """This rank's task and where the others are, since the last `join` or `begin`."""
        assert self._tasks.tasks is not None
        return self._tasks.tasks

    def join(
        self, cluster: Cluster, resources: ResourceManager, save: Callable[[], Arrays]
    ) -> Joined | None:
        """Begins a round; a collective call of all ranks. See `ElasticTasks.join`.

        Args:
            cluster: the ranks that there are now.
            resources: what decides which hosts there are.
            save: returns what belongs to the chunks' state of now.

        Returns:
            What all ranks go on with; None: nobody has begun, and `begin` follows.
        """
        self._cluster, self._resources, self._save = cluster, resources, save
        joined = self._tasks.join(cluster, save, resources.notice() is not None)
        return None if joined is None else self._told(joined)

    def begin(self) -> Joined:
        """Reads and places all chunks; a collective call. See `ElasticTasks.begin`."""
        return self._told(self._tasks.begin(self._cluster, self._save()))

    def _told(self, joined: Joined) -> Joined:
        self._last_commit = time.monotonic()
        rank, number = self._cluster.rank, self._tasks.number
        assert number is not None
        self._members = Members(self._resources, rank, number, self._say)
        self._changes.tell(joined, self._reached, self.tasks, self._cluster, self._resources.host)
        return joined

    def set_out(self, iteration: int) -> None:
        """Hears that an iteration begins, or is under way."""
        self._tasks.at, self._reached = None, iteration

    def tell(self) -> dict[str, Any]:
        """Returns what this rank tells the others in an iteration, of what JSON can hold."""
        is_due = time.monotonic() - self._last_commit >= self._commit_seconds
        commits = self.wants_commit or (is_due and self._cluster.rank == 0)
        return {**self._members.tell(), "commits": commits}

    def arrive(self, iteration: int) -> None:
        """Hears that so many iterations have ended: the state is that of between two."""
        self._tasks.at = self._reached = iteration

    def between(
        self,
        told: Sequence[dict[str, Any]],
        notify: Callable[[TasksLeaving], None] | None = None,
    ) -> None:
        """Commits if it is time, and lets ranks come and go; a collective call, after `arrive`.

        Args:
            told: by rank.
            notify: tells policies of tasks with notice; asked on rank 0.

        Raises:
            HostsUpdatedInterrupt: there is to be a rendezvous.
            SystemExit: all ranks are to leave.
            HorovodInternalError: another rank has died or left.
        """
        if any(one["commits"] for one in told):
            self.commit()
        try:
            self._members.heed(told, self.tasks, self._cluster, notify)
        except HostsUpdatedInterrupt:
            self.commit()  # so that nothing is lost with a host that goes meanwhile
            raise
        except AllLeaveError as error:
            if self._cluster.rank == 0:
                self._say(f"{error} It ends.")
            raise SystemExit(TERMINATED) from error

    def commit(self) -> None:
        """Commits the state of now; a collective call."""
        self._tasks.commit(self._cluster, self._save())
        self._last_commit, self.wants_commit = time.monotonic(), False

"""The chunks of a Keras training over all changes of a job, and what is saved with them."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from horovod.common.exceptions import HostsUpdatedInterrupt

from trepak.tf_plugins.chicle.changes import Changes
from trepak.tf_plugins.chicle.cluster import Arrays, Cluster
from trepak.tf_plugins.chicle.elastic_tasks import ElasticTasks, Joined
from trepak.tf_plugins.chicle.members import AllLeaveError, Members, ResourceManager
from trepak.tf_plugins.chicle.moving import Tasks
from trepak.tf_plugins.chicle.supply import Cut, Supply
from trepak.tf_plugins.model.member_state import TERMINATED

_IN_PASS, _STRUCTURE = "dataset: amid a pass", "dataset: structure"


class ElasticChunks:
    """What a ChunkedDataset has of an elastic job.

    Attributes:
        is_amid_pass: whether the commit that ranks go on from was amid a pass over the samples.
        structure: of the samples, as their first readers have described it.
        version: the iteration that ranks go on from.
    """

    def __init__(self, cut: Cut, seed: int, replicas: bool, say: Callable[[str], None]) -> None:
        """Makes it; nothing is read yet.

        Args:
            cut: see `Supply`.
            seed: see `ElasticTasks`.
            replicas: see there.
            say: shows a line, on rank 0.
        """
        self._tasks = ElasticTasks(Supply(cut), seed, replicas=replicas)
        self._changes, self._say = Changes(say), say
        self.is_amid_pass = self.wants_commit = False
        self.structure, self.version = "", 0
        self._reached = 0

    @property
    def tasks(self) -> Tasks:
        """This rank's task, since the last `join` or `begin`."""
        assert self._tasks.tasks is not None
        return self._tasks.tasks

    def join(
        self, cluster: Cluster, resources: ResourceManager, save: Callable[[], Arrays]
    ) -> Arrays | None:
        """Calls the roll; a collective call of all ranks. See `ElasticTasks.join`.

        Args:
            cluster: the ranks.
            resources: what decides which hosts there are.
            save: returns what the model has now.

        Returns:
            What the model is to have; None: nobody has begun, and `begin` follows.
        """
        self._cluster, self._resources, self._save = cluster, resources, save
        joined = self._tasks.join(cluster, self._saved, resources.notice() is not None)
        return None if joined is None else self._gone_on(joined)

    def begin(self, structure: str) -> None:
        """Reads and places all chunks; a collective call. See `ElasticTasks.begin`.

        Args:
            structure: of the samples; the same on all ranks.
        """
        self.structure = structure
        self._gone_on(self._tasks.begin(self._cluster, self._saved()))

    def _gone_on(self, joined: Joined) -> Arrays:
        saved = dict(joined.saved)
        self.is_amid_pass = bool(saved.pop(_IN_PASS))
        self.structure, self.version = str(saved.pop(_STRUCTURE)), joined.version
        self._last_commit = time.monotonic()
        assert self._tasks.number is not None
        host = self._resources.host
        self._members = Members(self._resources, self._cluster.rank, self._tasks.number, self._say)
        self._changes.tell(joined, self._reached, self.tasks, self._cluster, host)
        return saved

    def set_out(self, iteration: int) -> None:
        """Hears that an iteration begins."""
        self._tasks.at, self._reached = None, iteration

    def tell(self, seconds: float) -> dict[str, Any]:
        """Returns what this rank tells the others in an iteration.

        Args:
            seconds: between two commits.
        """
        is_due = time.monotonic() - self._last_commit >= seconds and self._cluster.rank == 0
        return {**self._members.tell(), "commits": is_due or self.wants_commit}

    def between(self, told: Sequence[dict[str, Any]], iteration: int, is_amid_pass: bool) -> None:
        """Commits if it is time, and lets ranks come and go; a collective call.

        Args:
            told: by rank.
            iteration: how many have ended.
            is_amid_pass: whether the pass over all samples goes on.

        Raises:
            HostsUpdatedInterrupt: there is to be a rendezvous.
            SystemExit: all ranks are to leave.
            HorovodInternalError: another rank has died or left.
        """
        self._tasks.at, self.is_amid_pass = iteration, is_amid_pass
        if any(one["commits"] for one in told):
            self._commit()
        try:
            self._members.heed(told, self.tasks, self._cluster)
        except HostsUpdatedInterrupt:
            self._commit()
            raise
        except AllLeaveError as error:
            if self._cluster.rank == 0:
                self._say(f"{error} It ends.")
            raise SystemExit(TERMINATED) from error

    def _commit(self) -> None:
        self._tasks.commit(self._cluster, self._saved())
        self._last_commit, self.wants_commit = time.monotonic(), False

    def _saved(self) -> Arrays:
        about = {_IN_PASS: np.asarray(self.is_amid_pass), _STRUCTURE: np.asarray(self.structure)}
        return {**self._save(), **about}

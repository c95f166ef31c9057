"""A training that goes on while ranks join, leave and die.

In a job that isn't elastic it is a plain training.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

from horovod.common.exceptions import HostsUpdatedInterrupt

from trepak.tf_plugins.chicle.changes import Changes
from trepak.tf_plugins.chicle.cluster import Arrays, Cluster, packed, unpacked
from trepak.tf_plugins.chicle.elastic_tasks import ElasticTasks, Joined
from trepak.tf_plugins.chicle.members import Members, ResourceManager
from trepak.tf_plugins.chicle.policy import Policy
from trepak.tf_plugins.chicle.supply import Cut, Supply
from trepak.tf_plugins.chicle.trainer import IterationMetrics, Trainer
from trepak.tf_plugins.chicle.training import Clock, Training, wall_clock

After = Callable[[IterationMetrics], Any]


class ElasticTraining:
    """A trainer, a source of samples, and the policies, over all changes of a job.

    Attributes:
        tasks: this rank's task, and its chunks.
    """

    def __init__(
        self,
        trainer: Trainer,
        cut: Cut,
        resources: ResourceManager,
        policies: Sequence[Policy] = (),
        seed: int = 0,
        commit_seconds: float = 10.0,
        replicas: bool = False,
        clock: Clock = wall_clock,
        say: Callable[[str], None] = lambda line: print(f"trepak: {line}", flush=True),
    ) -> None:
        """Makes it; nothing is read yet.

        Args:
            trainer: this rank's, which can `save` and `load`.
            cut: returns how a part's samples are cut: (part, parts) -> Cutting. Any rank may be
                asked for any part, at any time.
            resources: what decides which hosts there are.
            policies: what decides between iterations; those of the present rank 0 are asked.
            seed: who gets which chunk in the beginning depends on it alone.
            commit_seconds: between two commits; what is trained since the last one is trained again
                after a failure.
            replicas: whether the next rank keeps a copy of each chunk, so that none is read again.
            clock: see `Training`.
            say: shows a line, on rank 0: one for each event.
        """
        self._trainer, self._resources, self._policies = trainer, resources, policies
        self._commit_seconds, self._clock, self._say = commit_seconds, clock, say
        self.tasks = ElasticTasks(Supply(cut), seed, replicas=replicas)
        self._last_commit = 0.0
        self._reached = 0  # the iteration that was under way when the last round ended
        self._changes = Changes(say)

    def round(self, cluster: Cluster, after: After | None = None) -> Training:
        """Trains until the trainer has no model to go on from, or the ranks change.

        A collective call of all ranks that there are.

        Args:
            cluster: the ranks.
            after: is called after each iteration, when chunks have moved.

        Returns:
            The training, which has ended.

        Raises:
            HorovodInternalError: a rank has died: call it again with those that there are.
            HostsUpdatedInterrupt: ranks come or go: call it again with those that there are.
            AllLeaveError: all ranks were given notice.
            ValueError: samples can't be read, or another rank has failed.
        """
        joined = self._joined(cluster)
        tasks, number = self.tasks.tasks, self.tasks.number
        assert tasks is not None and number is not None
        members = Members(self._resources, cluster.rank, number, self._say)

        def tell() -> dict[str, Any]:
            self.tasks.at, self._reached = None, training.iteration
            is_due = time.monotonic() - self._last_commit >= self._commit_seconds
            return {**members.tell(), "commits": cluster.rank == 0 and is_due}

        def between(metrics: IterationMetrics) -> None:
            self.tasks.at = self._reached = training.iteration
            if after is not None:
                after(metrics)
            self._between(training, members, cluster)

        training = Training(
            self._trainer, tasks, cluster, self._policies, self._clock, joined.version, tell
        )
        with training:
            self._recover(joined, training, cluster)
            self._changes.tell(joined, self._reached, tasks, cluster, self._resources.host)
            training.run(between)
        return training

    def _between(self, training: Training, members: Members, cluster: Cluster) -> None:
        if training.told[0]["commits"]:
            self._commit(cluster)
        try:
            members.heed(training.told, training.tasks, cluster, training.notify)
        except HostsUpdatedInterrupt:
            self._commit(cluster)  # so that nothing is lost with a host that goes meanwhile
            raise

    def _commit(self, cluster: Cluster) -> None:
        self.tasks.commit(cluster, self._trainer.save())
        self._last_commit = time.monotonic()

    def _joined(self, cluster: Cluster) -> Joined:
        is_leaving = self._resources.notice() is not None
        joined = self.tasks.join(cluster, self._trainer.save, is_leaving)
        if joined is None:
            self._trainer.begin(cluster)
            saved, _ = cluster.together(self._saved, "what is saved")
            joined = self.tasks.begin(cluster, saved)
        else:
            self._trainer.load(joined.saved)
        self._last_commit = time.monotonic()
        return joined

    def _saved(self) -> tuple[Arrays, None]:
        """Returns what the trainer saves, once it has shown that it can go on from it."""
        saved = unpacked(packed(self._trainer.save()))
        self._trainer.load(saved)
        return saved, None

    def _recover(self, joined: Joined, training: Training, cluster: Cluster) -> None:
        if joined.is_unsound:
            self._trainer.recover(training.solvers, cluster)
            self._commit(cluster)

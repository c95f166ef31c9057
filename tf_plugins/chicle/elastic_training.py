"""A training that goes on while ranks join, leave and die.

In a job that isn't elastic it is a plain training.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from trepak.tf_plugins.chicle.cluster import Arrays, Cluster, packed, unpacked
from trepak.tf_plugins.chicle.elastic_rounds import ElasticRounds
from trepak.tf_plugins.chicle.elastic_tasks import Joined
from trepak.tf_plugins.chicle.ledger import Ledger
from trepak.tf_plugins.chicle.members import ResourceManager
from trepak.tf_plugins.chicle.moving import Tasks
from trepak.tf_plugins.chicle.policy import Policy
from trepak.tf_plugins.chicle.supply import Cut
from trepak.tf_plugins.chicle.trainer import IterationMetrics, Trainer
from trepak.tf_plugins.chicle.training import Clock, Training, wall_clock

After = Callable[[IterationMetrics], Any]
_TRAINER, _ITERATION = "result: trainer", "result: iteration"


class ElasticTraining:
    """A trainer, a source of samples, and the policies, over all changes of a job.

    Attributes:
        rounds: of the job, with this rank's task and its chunks.
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
        self._clock = clock
        self.rounds = ElasticRounds(cut, seed, commit_seconds, replicas, say)

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
            SystemExit: all ranks were given notice.
            ValueError: samples can't be read, or another rank has failed.
        """
        joined, rounds = self._joined(cluster), self.rounds

        def tell() -> dict[str, Any]:
            rounds.set_out(training.iteration)
            return rounds.tell()

        def between(metrics: IterationMetrics) -> None:
            rounds.arrive(training.iteration)
            if after is not None:
                after(metrics)
            rounds.between(training.told, training.notify)

        training = Training(
            self._trainer, rounds.tasks, cluster, self._policies, self._clock, joined.version, tell
        )
        with training:
            if joined.is_unsound:
                self._trainer.recover(training.solvers, cluster)
                rounds.commit()
            training.run(between)
        return training

    def result(self, trained: Training) -> Arrays:
        """Returns what a rank that joins later takes in place of this training.

        Args:
            trained: what `round` has returned.
        """
        about = {
            _TRAINER: np.asarray(type(self._trainer).__name__),
            _ITERATION: np.asarray(trained.iteration),
        }
        return self._trainer.save() | about

    def take(self, result: Arrays) -> Training:
        """Returns a training that has ended on other ranks, without tasks; nothing is trained.

        Args:
            result: what another rank's `result` has returned.

        Raises:
            ValueError: it is of another training.
        """
        about = dict(result)
        theirs, mine = str(about.pop(_TRAINER)), type(self._trainer).__name__
        iteration = int(about.pop(_ITERATION))
        if theirs != mine:
            raise ValueError(
                f"this rank is to train a {mine}, and joins others whose training of the same "
                f"number was of a {theirs}: start the same script on all hosts."
            )
        self._trainer.load(about)
        nothing = Tasks({}, Ledger(0), {}, [])
        with Training(self._trainer, nothing, first=iteration) as training:
            return training

    def _joined(self, cluster: Cluster) -> Joined:
        joined = self.rounds.join(cluster, self._resources, self._trainer.save)
        if joined is None:
            self._trainer.begin(cluster)
            cluster.together(self._checked, "what is saved")
            return self.rounds.begin()
        self._trainer.load(joined.saved)
        return joined

    def _checked(self) -> tuple[None, None]:
        """Has the trainer show that it can go on from what it saves."""
        self._trainer.load(unpacked(packed(self._trainer.save())))
        return None, None

"""Trainings in jobs of Horovod's: once, or in rounds that begin when ranks have come or gone."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence

from horovod.common.elastic import notification_manager

from trepak.horovod_ext import basics, membership
from trepak.tf_plugins.chicle.cluster import cluster_of_job
from trepak.tf_plugins.chicle.cutting import Cutting
from trepak.tf_plugins.chicle.elastic_training import After, ElasticTraining
from trepak.tf_plugins.chicle.job_trainings import JobTrainings
from trepak.tf_plugins.chicle.members import ResourceManager
from trepak.tf_plugins.chicle.placing import place
from trepak.tf_plugins.chicle.policy import Policy
from trepak.tf_plugins.chicle.supply import Cut
from trepak.tf_plugins.chicle.trainer import Trainer
from trepak.tf_plugins.chicle.training import Training
from trepak.tf_plugins.model.elastic import run
from trepak.tf_plugins.model.member_state import MemberState, say

_trainings = JobTrainings(say)  # of this process, in elastic jobs


class HorovodHosts(ResourceManager):
    """The hosts of a job, as Horovod and its launcher tell.

    Attributes:
        state: that Horovod tells of other hosts.
    """

    def __init__(self, state: MemberState | None = None) -> None:
        """Makes it, by default with a state that keeps nothing."""
        self.state = MemberState() if state is None else state
        self.host = membership.host()

    def notice(self) -> str | None:
        """See `ResourceManager`."""
        return membership.notice()

    def withdraw(self, hosts: Sequence[str]) -> None:
        """See `ResourceManager`."""
        self.state.ask_to_leave(hosts)

    def has_changed(self) -> bool:
        """See `ResourceManager`."""
        return self.state.hears()

    def meet(self) -> None:
        """See `ResourceManager`."""
        self.state.forget()

    def expected_hosts(self) -> Mapping[str, int] | None:
        """See `ResourceManager`."""
        return membership.expected_hosts()

    def is_over(self) -> bool:
        """See `ResourceManager`."""
        return membership.answer() in ("end", "silent")


class _Listener:
    """Hears of other hosts between two trainings, too, as the state of one does amid it."""

    def __init__(self, state: MemberState) -> None:
        self.on_hosts_updated = state.on_hosts_updated


@functools.cache
def _hosts_of_job() -> HorovodHosts:
    """Returns what all trainings of this process have of the job's hosts."""
    hosts = HorovodHosts()
    notification_manager.register_listener(_Listener(hosts.state))
    return hosts


def is_elastic() -> bool:
    """Tells whether ranks of this job may come and go."""
    return basics.is_initialized() and basics.is_elastic()


def train(
    trainer: Trainer,
    cut: Cut,
    policies: Sequence[Policy] = (),
    seed: int = 0,
    tasks: int | None = None,
    commit_seconds: float = 10.0,
    replicas: bool = False,
    after: After | None = None,
) -> Training:
    """Trains to the end on all ranks, in an elastic job on whichever there are.

    A collective call. In an elastic job (`trepak elastic`) ranks may join, leave with notice and
    die meanwhile, and the trainer needs `save` and `load`. A rank that joins when this training is
    over loads what the others' trainers have saved at its end.

    Args:
        trainer: this rank's.
        cut: returns how a part's samples are cut: (part, parts) -> Cutting, e.g. of what a `Source`
            reads. In an elastic job any rank may be asked for any part, at any time.
        policies: what decides between iterations; rank 0's are asked.
        seed: who gets which chunk in the beginning depends on it alone; rank 0's counts.
        tasks: of all ranks, in a job that isn't elastic; by default one on each.
        commit_seconds: of an elastic job, between two commits; what was trained since the last one
            is trained again after a failure.
        replicas: of an elastic job, whether the next rank keeps a copy of each chunk, so that those
            of a rank that has died are not read again.
        after: is called after each iteration, when chunks have moved.

    Returns:
        The training, which has ended: `tasks` are this rank's, with their chunks. A rank that has
        joined since has none, nor has one that the others had lost at the very end.

    Raises:
        SystemExit: this rank has left the job, or all were given notice.
        TypeError: `cut` returned something else.
        ValueError: samples can't be read, or another rank has failed; or this rank has joined
            others that trained something else.
        HorovodInternalError: a rank has died, in a job that isn't elastic.
    """
    cut_ = functools.partial(_checked, cut)
    if is_elastic():
        hosts = _hosts_of_job()
        elastic = ElasticTraining(
            trainer, cut_, hosts, policies, seed, commit_seconds, replicas, say=say
        )
        return _train_in_rounds(elastic, hosts.state, after)
    cluster = cluster_of_job()
    trainer.begin(cluster)
    part = cluster.rank, cluster.size
    cutting, _ = cluster.together(lambda: (cut_(*part), None), "how samples are cut")
    seed = cluster.gather(seed, "the seed")[0]
    placed = place(cutting, tasks or cluster.size, cluster, seed)
    with Training(trainer, placed, cluster, policies) as training:
        training.run(after)
    return training


def _checked(cut: Cut, part: int, parts: int) -> Cutting:
    made = cut(part, parts)
    if not isinstance(made, Cutting):
        raise TypeError(
            f"cut(part, parts) must return a chicle.Cutting, and returned {made!r:.200}."
        )
    return made


def _train_in_rounds(elastic: ElasticTraining, state: MemberState, after: After | None) -> Training:
    number = _trainings.begin()

    @run
    def rounds(_: MemberState) -> Training:
        return _trainings.round(number, elastic, cluster_of_job(), after)

    trained: Training = rounds(state)
    return trained

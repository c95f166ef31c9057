"""Horovod Elastic as the resource manager of a training, and what starts its rounds anew."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from trepak.horovod_ext import basics, membership
from trepak.tf_plugins.chicle.cluster import cluster_of_job
from trepak.tf_plugins.chicle.elastic_training import After, ElasticTraining
from trepak.tf_plugins.chicle.members import AllLeaveError, ResourceManager
from trepak.tf_plugins.chicle.training import Training
from trepak.tf_plugins.model.elastic import run
from trepak.tf_plugins.model.member_state import TERMINATED, MemberState, say


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


def is_elastic() -> bool:
    """Tells whether ranks of this job may come and go."""
    return basics.is_initialized() and basics.is_elastic()


def train(training: ElasticTraining, hosts: HorovodHosts, after: After | None = None) -> Training:
    """Trains to the end, on whichever ranks there are; once, in a job that is not elastic.

    Args:
        training: this rank's.
        hosts: its resource manager.
        after: see `ElasticTraining.round`.

    Raises:
        SystemExit: this rank has left the job, or all were given notice.
        ValueError: samples can't be read, or another rank has failed.
    """
    if not is_elastic():
        return training.round(cluster_of_job(), after)

    @run
    def rounds(_: MemberState) -> Training:
        try:
            return training.round(cluster_of_job(), after)
        except AllLeaveError as error:
            if basics.rank() == 0:
                say(f"{error} It ends after its last commit.")
            raise SystemExit(TERMINATED) from error

    trained: Training = rounds(hosts.state)
    return trained

"""State of ranks whose hosts come and go: they agree when to make place for others, or to leave."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from typing import Any

from horovod.common.elastic import ObjectState
from horovod.common.exceptions import HostsUpdatedInterrupt

from trepak.horovod_ext import basics, exchange, membership
from trepak.horovod_ext.broadcasting import broadcast_object

TERMINATED = 128 + 15  # exit code of ranks that end because all are to leave: SIGTERM's
# After which ranks go into a reset for a host that is left out, though Horovod has not told them:
# it tells rank 0 once, or nobody if rank 0 has only begun.
_UNTOLD_SECONDS = 10.0

RUN = "functions that elastic.run decorates"
_first_kind: str | None = None  # of this process's trainings; see `check_kind`


def check_kind(kind: str) -> None:
    """Raises ValueError for a second kind of training in an elastic job.

    A process that joins in it would begin the script with the first kind, and its collectives would
    meet those of the second: the job would end.

    Args:
        kind: in words, what trains now; see `MemberState`.
    """
    global _first_kind
    _first_kind = _first_kind or kind
    if kind != _first_kind:
        raise ValueError(
            f"this script has trained by {_first_kind}, and goes on with {kind}: a process that "
            "joins the elastic job then could take up neither. Start an elastic job for each."
        )


def say(text: str) -> None:
    """Tells the user of an event, in one line."""
    print(f"trepak: {text}", file=sys.stderr, flush=True)


class MemberState(ObjectState):
    """State of ranks whose hosts may come and go: of attributes alone.

    Attributes:
        kind: in words, what trains with it.
    """

    kind = "fits of linear models, or chicle.train"

    def __init__(self, **kwargs: Any) -> None:
        """Saves the attributes' present values as the first commit.

        Args:
            kwargs: what to synchronize, e.g. `epoch=0`.
        """
        self._has_heard = False  # of other hosts; one of Horovod's threads sets it
        self._members: list[str] = []  # the hosts of all ranks, once they have told them
        self._left_out_at: float | None = None  # since when this rank's host is
        super().__init__(bcast_object=broadcast_object, get_rank=basics.rank, **kwargs)

    def may_leave(self) -> bool:
        """Tells whether this rank's host may be withdrawn now that it has notice.

        A subclass returns False as long as it has yet to hand on what only this rank has. It is
        asked at each commit; no collective call.
        """
        return True

    def on_hosts_updated(self, timestamp: int, update_res: Any) -> None:
        """Takes Horovod's word that there are other hosts; called in a thread of Horovod's."""
        self._has_heard = True

    def on_reset(self) -> None:
        """Is called when there are other ranks."""
        self._members, self._left_out_at = [], None
        super().on_reset()

    def check_host_updates(self) -> None:
        """Raises HostsUpdatedInterrupt if there are other hosts; a collective call.

        Ranks always go on from rank 0's state then, since a host that has come meanwhile waits for
        it. A host with notice is withdrawn here, and its ranks leave at a later call.

        Raises:
            SystemExit: all hosts have notice.
        """
        silent = self._withdraw()
        facts = [membership.host(), self.hears(), membership.answer() == "end", silent]
        everyone = exchange.gather(facts, "whether there are other hosts")
        self._members, heard, ended, silences = map(list, zip(*everyone, strict=True))
        if any(ended) or all(silences):
            if basics.rank() == 0:
                say("all hosts have notice: the job ends.")
            raise SystemExit(TERMINATED)
        if any(heard):
            self.forget()
            raise HostsUpdatedInterrupt(False)

    def forget(self) -> None:
        """Forgets what it has heard: what comes from now on may come too late for this reset."""
        self._has_heard = False

    def hears(self) -> bool:
        """Tells whether this rank knows of other hosts, or has waited too long to be told."""
        since = self._left_out_at
        return self._has_heard or (since is not None and time.monotonic() - since > _UNTOLD_SECONDS)

    def _withdraw(self) -> bool:
        """Withdraws the host if it has notice; returns whether no launcher answers."""
        if membership.notice() is None or not self._members or not self.may_leave():
            return False
        self.ask_to_leave(self._members)
        return membership.answer() == "silent"

    def ask_to_leave(self, hosts: Sequence[str]) -> None:
        """Asks that the next reset be without this host; may be called again and again.

        Args:
            hosts: of all ranks.
        """
        if membership.withdraw(hosts):
            self._left_out_at = self._left_out_at or time.monotonic()

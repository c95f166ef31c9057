"""Which hosts an elastic job is to have: those that are listed, without those that are leaving."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection, Mapping

LEAVE_SECONDS = 620.0  # that a rank may take to leave; a reset may take 600
REST_SECONDS = 10.0  # in which its process then ends, and Horovod has seen that


class Roster:
    """What was listed last, and which of it has notice; any thread may use it.

    A host that is withdrawn comes back once it was not listed in between, and its ranks have ended.
    """

    def __init__(
        self,
        least: int,
        say: Callable[[str], None],
        changed: Callable[[dict[str, int]], None] = lambda hosts: None,
        is_known: Callable[[], bool] = lambda: True,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Starts without hosts.

        Args:
            least: ranks that the job must keep.
            say: is given one sentence for each event.
            changed: is given the hosts that the job is to have, in turn, whenever they change.
            is_known: tells whether Horovod knows what `changed` was given last.
            clock: returns seconds.
        """
        self._least = least
        self._say = say
        self._changed = changed
        self._is_known = is_known
        self._clock = clock
        self._lock = threading.Lock()  # guards all below, and makes calls of `changed` take turns
        self._listed: dict[str, int] = {}
        self._told: dict[str, int] | None = None  # what `changed` was given last
        self._noticed: set[str] = set()
        self._withdrawn: set[str] = set()
        self._resting: dict[str, float] = {}  # hosts whose ranks have left, and until when

    def expected(self) -> dict[str, int]:
        """Returns the hosts that the job is to have, and the slots of each."""
        with self._lock:
            return self._expected()

    def update(self, listed: Mapping[str, int]) -> None:
        """Takes what is listed now."""
        with self._lock:
            self._listed = dict(listed)
            self._noticed &= self._listed.keys()
            for host in self._withdrawn - self._listed.keys():
                self._withdrawn.remove(host)
                self._say(f"{host}, which was withdrawn, is no longer listed: it may come back.")
            now = self._clock()
            self._resting = {host: end for host, end in self._resting.items() if end > now}
            self._tell()

    def withdraw(self, host: str, members: Collection[str] = ()) -> str:
        """Gives a host notice, and leaves it out if those that stay can go on without it.

        Args:
            host: the host that asks.
            members: the hosts of the job's ranks; one of them must stay. Nothing is asked of none.

        Returns:
            "leave", "wait" or "end"; see `horovod_ext.membership.answer`.
        """
        with self._lock:
            if host not in self._expected():
                all_leave = host in self._listed and self._listed.keys() <= self._noticed
                return "end" if all_leave else "leave"
            is_new = host not in self._noticed
            self._noticed.add(host)
            if self._listed.keys() <= self._noticed:
                self._say_once(is_new, f"{host} has notice, as all hosts have: the job ends.")
                return "end"
            obstacle = self._obstacle(host, members)
            if obstacle:
                self._say_once(is_new, f"{host} has notice, but stays: {obstacle}")
                return "wait"
            self._withdrawn.add(host)
            self._say(f"{host} is withdrawn: its ranks leave at the next commit.")
            self._tell()
            return "leave"

    def _obstacle(self, host: str, members: Collection[str]) -> str:
        """Returns why the job can't go on without a host yet."""
        expected = self._expected()
        if members and not ({*members} & expected.keys()) - self._noticed:
            return "no other host has the job's state."
        left = sum(expected.values()) - expected[host]
        if left < self._least:
            return f"without it there are slots for {left}, and --min-np is {self._least}."
        return ""

    def _say_once(self, is_new: bool, text: str) -> None:
        if is_new:
            self._say(text)

    def leaving(self, host: str) -> str:
        """Promises a rank that its host stays out until its process has ended, if it is out.

        Returns:
            "yes"; "wait": it is out, but Horovod may not know that yet; "no": it is not out.
        """
        with self._lock:
            if host in self._expected():
                return "no"
            if not self._is_known():
                return "wait"
            self._resting[host] = self._clock() + LEAVE_SECONDS
            return "yes"

    def left(self, host: str) -> None:
        """Takes that the process of a rank that was promised this ends now."""
        with self._lock:
            if host in self._resting:
                self._resting[host] = self._clock() + REST_SECONDS

    def _expected(self) -> dict[str, int]:
        out = self._withdrawn | self._resting.keys()
        return {host: slots for host, slots in self._listed.items() if host not in out}

    def _tell(self) -> None:
        """Says which hosts have come and gone, and hands on what is expected."""
        expected, told = self._expected(), self._told or {}
        for host, slots in expected.items():
            if host not in told:
                self._say(f"{host} joins ({_counted(slots)}).")
            elif told[host] != slots:
                self._say(f"{host} has {_counted(slots)} now; it had {told[host]}.")
        for host in told.keys() - self._listed.keys():
            self._say(f"{host} is no longer listed: its ranks leave at the next commit.")
        if expected != self._told:
            self._told = expected
            self._changed(expected)


def _counted(slots: int) -> str:
    return f"{slots} slot{'s' * (slots > 1)}"

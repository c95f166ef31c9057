"""Runs an elastic job: horovodrun, and beside it what keeps its hosts."""

from __future__ import annotations

import contextlib
import os
import shlex
import socket
import sys
import tempfile
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import psutil

from trepak.scripts.elastic import listing
from trepak.scripts.elastic.discovery import Discovery
from trepak.scripts.elastic.roster import Roster
from trepak.scripts.elastic.server import MembershipServer
from trepak.scripts.errors import InputError, UserError
from trepak.scripts.launcher import horovodrun, supervise

_LIST_SECONDS = 1.0  # between two lists, as long as Horovod waits between two looks
# In which a rank that joins must start and import TensorFlow. The others wait for it in Horovod's
# native code, which ends their processes, and so the job, when the time is over: by default 30 s.
_START_SECONDS = 120
_KEPT_LINES = 1000  # of what the job has printed, of which a failure shows what was held back


@dataclass(frozen=True)
class Job:
    """What is to run, and on how many ranks.

    Attributes:
        command: program and arguments.
        hosts: the script, or the file, that lists the hosts.
        np: ranks with which the job begins.
        min_np: ranks without which it waits for more.
        max_np: ranks that it has at most; None: as many as there are slots.
        cooldown: seconds, at least and at most, for which a host is not used on which a rank died.
        interfaces: of the network; none: Horovod finds them.
        options: further ones of horovodrun.
    """

    command: Sequence[str]
    hosts: Path
    np: int
    min_np: int
    max_np: int | None
    cooldown: tuple[int, int]
    interfaces: Sequence[str] = ()
    options: Sequence[str] = ()


def run(job: Job) -> int:
    """Runs a job to its end, and returns horovodrun's exit code.

    Raises:
        InputError: what should list the hosts does not.
        FileNotFoundError: there is no horovodrun.
    """
    with tempfile.TemporaryDirectory(prefix="trepak-elastic-") as folder:
        discovery = Discovery(Path(folder))
        roster = Roster(job.min_np, say, discovery.write, discovery.is_known)
        hosts = listing.read(job.hosts)
        roster.update(hosts)
        slots = sum(hosts.values())
        if slots < job.np:
            say(f"the job begins when there are {job.np} slots; there are {slots}.")
        if len(hosts) < 2 and not job.interfaces:
            say(
                "Horovod waits for a second host, to find the network that they share: give "
                "--network-interface if there is to be one (lo, if it is this machine)."
            )
        with _server(roster, job.interfaces) as server, _kept(roster, job.hosts):
            env = {**os.environ, "TREPAK_MEMBERSHIP": server.credentials}
            outcome = supervise(launcher(job, discovery.script), env=env, keep=_KEPT_LINES)
    return outcome.exit_code


def launcher(job: Job, discovery: Path) -> list[str]:
    """Returns the command line of horovodrun."""
    most = [] if job.max_np is None else ["--max-np", str(job.max_np)]
    return [
        horovodrun(),
        "--gloo",
        *("-np", str(job.np), "--min-np", str(job.min_np), *most),
        *("--host-discovery-script", shlex.quote(str(discovery))),  # which a shell reads
        *("--blacklist-cooldown-range", *map(str, job.cooldown)),
        *("--gloo-timeout-seconds", str(_START_SECONDS)),
        *(part for one in job.interfaces for part in ("--network-interfaces", one)),
        *job.options,
        *job.command,
    ]


def say(text: str) -> None:
    """Tells the user of an event, in one line."""
    print(f"trepak elastic: {text}", file=sys.stderr, flush=True)


@contextlib.contextmanager
def _server(roster: Roster, interfaces: Sequence[str]) -> Iterator[MembershipServer]:
    server = MembershipServer(roster, _address_of(interfaces))
    try:
        yield server
    finally:
        server.close()


def _address_of(interfaces: Sequence[str]) -> str:
    """Returns this machine's address where there is one interface; "" stands for all."""
    if len(interfaces) != 1:
        return ""
    found = psutil.net_if_addrs().get(interfaces[0], [])
    return next((one.address for one in found if one.family == socket.AF_INET), "")


@contextlib.contextmanager
def _kept(roster: Roster, path: Path) -> Iterator[None]:
    """Gives the roster what is listed, again and again, until the block ends."""
    over = threading.Event()
    thread = threading.Thread(target=_keep, args=(roster, path, over), daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join(_LIST_SECONDS)  # a script may hang; the process ends without it


def _keep(roster: Roster, path: Path, over: threading.Event) -> None:
    said = ""
    while not over.wait(_LIST_SECONDS):
        try:
            listed = listing.read(path)
            if not listed:  # perhaps it is being written
                raise InputError(f"{path} lists no hosts")
        except (UserError, OSError) as error:
            text = str(error).rstrip(".")
            if text != said:
                say(f"{text}. The hosts stay as they were.")
            said = text
            continue
        if said:
            say(f"{path} lists hosts again.")
        said = ""
        if not over.is_set():
            roster.update(listed)

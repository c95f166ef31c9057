"""Which labs are up: one file for each, written before anything is made and removed at the end.

A crash in between leaves the file, and `down` removes whatever it finds of the lab.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import shutil
import signal
import time
from collections.abc import Iterator
from pathlib import Path

from trepak.scripts.errors import read_json, reading
from trepak.scripts.lab import network
from trepak.scripts.lab.network import LabError
from trepak.scripts.lab.topology import Lab, check_name

FOLDER = Path("/run/trepak/labs")
LAB_VARIABLE = "TREPAK_LAB"  # in the environment of every process that a lab started: its name
_STOP_SECONDS = 5.0
_MOST_BYTES = 1 << 20  # of a lab's file


def read(name: str) -> Lab | None:
    """Returns the lab of that name; None if there is none.

    Raises:
        InputError: no lab can have that name, or its file is damaged.
    """
    check_name(name)
    path = FOLDER / f"{name}.json"
    remedy = "Remove it; `ip netns list` shows what may be left of the lab."
    try:
        content = read_json(path, _MOST_BYTES, "a lab's description", remedy)
    except FileNotFoundError:
        return None
    with reading(path, "a lab's description", remedy):
        return Lab(**content)


def read_all() -> list[Lab]:
    """Returns all labs of this machine, by name."""
    labs = [read(file.stem) for file in sorted(FOLDER.glob("*.json"))]
    return [lab for lab in labs if lab is not None]


@contextlib.contextmanager
def _locked() -> Iterator[None]:
    """One process at a time makes or removes labs; the kernel frees the lock of one that dies."""
    network.check_root()
    FOLDER.mkdir(parents=True, exist_ok=True)
    with (FOLDER / ".lock").open("w") as lock:
        deadline = time.monotonic() + 60
        while True:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() > deadline:
                    raise LabError(
                        "another `trepak lab` has been making or removing a lab for a minute. "
                        f"Is it stuck? It holds {FOLDER / '.lock'}."
                    ) from None
                time.sleep(0.05)
        yield


def up(name: str, hosts: int, rate: int, priorities: int, packet: int = 0) -> tuple[Lab, bool]:
    """Makes a lab, or finds it as it was made before; see `Lab`.

    Returns:
        The lab, and whether it is new.

    Raises:
        LabError: this machine can't, or a lab of that name is up and differs.
        InputError: the values make no lab.
    """
    network.check_machine()
    with _locked():
        found = read(name)
        lab = Lab(name, hosts, rate, priorities, packet=packet)
        if found and found == lab and network.exists(lab):
            return lab, False
        if found and found != lab and network.exists(found):
            raise LabError(
                f"a lab {name} is up already, and it differs: {describe(found)}. "
                f"`trepak lab down --name {name}` removes it; --name makes another beside it."
            )
        if found:
            _clear(found)  # what a crash left
        _write(lab)
        try:
            network.make(lab)
        except BaseException:
            _clear(lab)
            raise
        return lab, True


def down(name: str) -> tuple[bool, list[str]]:
    """Removes a lab: its processes, its network, its file.

    Returns:
        Whether there was one, and a line for each foreign process that was left alone.
    """
    with _locked():
        lab = read(name)
        return (True, _clear(lab)) if lab else (False, [])


def describe(lab: Lab) -> str:
    """Returns a lab's shape in words."""
    from trepak.scripts.lab.topology import format_rate

    return f"{lab.hosts} hosts at {format_rate(lab.rate)}, {lab.priorities} priorities"


def _write(lab: Lab) -> None:
    path = FOLDER / f"{lab.name}.json"
    new = path.with_suffix(".new")
    new.write_text(json.dumps(lab.to_json()))
    new.replace(path)


def _clear(lab: Lab) -> list[str]:
    foreign = stop_processes(lab)
    network.remove(lab)
    shutil.rmtree(FOLDER / lab.name, ignore_errors=True)
    (FOLDER / f"{lab.name}.json").unlink(missing_ok=True)
    return foreign


def stop_processes(lab: Lab) -> list[str]:
    """Ends the processes that the lab started and that are still in its namespaces.

    Returns:
        A line for each process that is there without having been started by the lab.
    """
    deadline = time.monotonic() + _STOP_SECONDS
    number = signal.SIGTERM
    while True:
        inside = network.processes(lab)
        ours = [pid for pid in inside if _started_by(lab, pid)]
        if not ours:
            return [
                f"process {pid} ({_command(pid)}) on {host} was not started by the lab: left alone"
                for pid, host in inside.items()
            ]
        for pid in ours:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)
        if time.monotonic() > deadline:
            number = signal.SIGKILL
        if time.monotonic() > 2 * _STOP_SECONDS + deadline:
            raise LabError(f"processes {ours} of the lab {lab.name} cannot be killed.")
        time.sleep(0.05)


def _started_by(lab: Lab, pid: int) -> bool:
    """Tells by the process's environment, which children inherit."""
    try:
        entries = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False  # it has just ended
    return f"{LAB_VARIABLE}={lab.name}".encode() in entries and state != "Z"


def _command(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/comm").read_text().strip()
    except OSError:
        return "ended"

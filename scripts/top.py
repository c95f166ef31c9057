"""`trepak top`: who makes whom wait, and Dymem's memory, live, in the jobs that have monitors."""

from __future__ import annotations

import contextlib
import dataclasses
import http.client
import math
import re
import socket
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from rich.console import Console, Group
from rich.live import Live
from rich.text import Text

from trepak.scripts.entrance import console as plain_console
from trepak.scripts.errors import InputError, UserError, printable, read_json, reading
from trepak.scripts.light_import import light_import

figures = light_import("trepak.tf_plugins.callbacks.memory_figures")
sinks = light_import("trepak.tf_plugins.callbacks.straggler_sinks")
tables = light_import("trepak.tf_plugins.callbacks.straggler_tables")

_NOTHING = (
    "No job on this machine tells of its ranks. Add trepak.callbacks.StragglerMonitor() to fit's "
    "callbacks, or MemoryMonitor() where there is a trepak.Dymem; for a job elsewhere give the "
    "first a port and an address, and ask with `trepak top --address HOST:PORT`."
)
_SECONDS = 1.0  # between two looks
_ANSWER_SECONDS = 5.0
_MOST_BYTES = 16 << 20  # of what a job says

_ADDRESS = re.compile(r"(?:\[([0-9A-Fa-f:.%]+)\]|([A-Za-z0-9._-]{1,253})):([0-9]{1,5})")


def parse_address(text: str) -> tuple[str, int]:
    """Returns host and port of text such as "node7:9090" or "[::1]:9090".

    Raises:
        InputError: it is no address.
    """
    match = _ADDRESS.fullmatch(text)
    if not match or not 1 <= int(match[3]) <= 65535:
        raise InputError(
            f"{text!r} is not an address: write HOST:PORT, e.g. node7:9090 or [::1]:9090."
        )
    return match[1] or match[2], int(match[3])


def local_jobs(folder: Path) -> list[dict[str, Any]]:
    """Returns what the jobs of this user on this machine say; forgets those that were killed.

    Raises:
        OSError: the folder is not this user's own.
    """
    found: list[dict[str, Any]] = []
    if not folder.exists():
        return found
    sinks.own_folder(folder)
    for file in sorted(folder.glob("*.json")):
        with contextlib.suppress(OSError, InputError):
            job = read_json(file, _MOST_BYTES, "what a job says of itself")
            with reading(file, "what a job says of itself"):
                if Path(f"/proc/{int(job['pid'])}").exists():
                    found.append(_checked(job))
                else:
                    file.unlink(missing_ok=True)
    return found


def _checked(job: Mapping[str, Any]) -> dict[str, Any]:
    """Returns a job as it is shown; raises what `reading` expects if it is none."""
    found: dict[str, Any] = {
        "pid": int(job.get("pid", 0)),
        "command": printable(str(job["command"])),
        "steps": int(job["steps"]),
    }
    if "memory" in job:
        names = (field.name for field in dataclasses.fields(figures.MemoryFigures))
        memory = {name: _finite(job["memory"][name]) for name in names}
        return found | {"rank": int(job["rank"]), "memory": figures.MemoryFigures(**memory)}
    verdict = printable(str(job.get("verdict", "")))
    found |= {"seconds": _finite(job["seconds"]), "verdict": verdict, "ranks": []}
    for rank in job["ranks"]:
        of_rank = {name: _finite(rank.get(name, 0.0)) for name in sinks.FIGURES}
        told = {"rank": int(rank["rank"]), "host": printable(str(rank["host"]))}
        optional = {key: rank[key] for key in ("steps", "waited_for") if rank.get(key) is not None}
        found["ranks"].append(told | of_rank | {key: int(v) for key, v in optional.items()})
    return found


def _finite(number: Any) -> float:
    if not math.isfinite(number):
        raise ValueError(f"{number} is not finite")
    return float(number)


def scraped_job(address: str) -> dict[str, Any]:
    """Returns what a job says at its metrics port.

    Args:
        address: HOST:PORT.

    Raises:
        UserError: nobody answers there, or who answers is no job of trepak.
    """
    from prometheus_client.parser import text_string_to_metric_families

    host, port = parse_address(address)
    try:
        text = _ask(host, port)
    except (OSError, UnicodeError, http.client.HTTPException) as error:
        raise UserError(
            f"no job answers at {address}: {error or type(error).__name__}. Is it the port= of a "
            "StragglerMonitor, and does it listen at that address (address=)?"
        ) from error
    with reading(f"what answers at {address}", "a job with a StragglerMonitor"):
        samples = [s for family in text_string_to_metric_families(text) for s in family.samples]
        values = {s.name.removeprefix(sinks.PREFIX): s.value for s in samples if not s.labels}
        ranks: dict[int, dict[str, Any]] = {}
        for sample in samples:
            name = sample.name.removeprefix(sinks.PREFIX)
            if name in sinks.FIGURES:
                rank = int(sample.labels["rank"])
                entry = ranks.setdefault(rank, {"rank": rank, "host": sample.labels["host"]})
                entry[name] = sample.value
        job = {"command": address, "steps": values["steps"], "seconds": values["seconds"]}
        return _checked({**job, "ranks": [ranks[rank] for rank in sorted(ranks)]})


def _ask(host: str, port: int) -> str:
    """Returns the metrics; asks the host itself, no proxy, and waits for a while only."""
    connection = http.client.HTTPConnection(host, port, timeout=_ANSWER_SECONDS)
    connection.connect()
    line = connection.sock
    # The time-out is of each piece that comes; who sends a byte at a time is hung up on.
    watch = threading.Timer(_ANSWER_SECONDS, lambda: _hang_up(line))
    watch.start()
    try:
        connection.request("GET", "/metrics")
        answer = connection.getresponse()
        content = answer.read(_MOST_BYTES + 1)
    finally:
        watch.cancel()
        connection.close()
    if answer.status != http.HTTPStatus.OK:
        raise http.client.HTTPException(f"it answers {answer.status} {answer.reason}")
    if len(content) > _MOST_BYTES:
        raise http.client.HTTPException(f"it answers with more than {_MOST_BYTES:,} bytes")
    return content.decode(errors="replace")


def _hang_up(line: socket.socket) -> None:
    with contextlib.suppress(OSError):  # it has just ended
        line.shutdown(socket.SHUT_RDWR)


def show(address: str | None, once: bool, console: Console | None = None) -> int:
    """Shows jobs until the user ends it: anew in a terminal, else one after the other.

    Args:
        address: HOST:PORT of a job's metrics; None for this machine's jobs.
        once: show them once.
        console: where to; standard output by default.

    Returns:
        The exit code, 0.

    Raises:
        UserError: nobody answers at the address, or it is none.
    """
    console = console or plain_console()

    def look() -> Any:
        return _view(
            local_jobs(sinks.status_folder()) if address is None else [scraped_job(address)]
        )

    if once:
        console.print(look())
    elif console.is_terminal:
        with Live(look(), console=console, screen=False) as live:
            _for_ever(lambda: live.update(look()))
    else:
        console.print(look())
        _for_ever(lambda: console.print(look()))
    return 0


def _for_ever(do: Callable[[], None]) -> None:
    while True:
        time.sleep(_SECONDS)
        do()


def _view(jobs: list[dict[str, Any]]) -> Any:
    if not jobs:
        return Text(_NOTHING)
    parts: list[Any] = []
    for job in jobs:
        if "memory" in job:
            title = f"{job['command']}: {job['steps']} steps, memory of rank {job['rank']}"
            parts += [Text(title, style="italic"), Text(job["memory"].line())]
            continue
        took = tables.format_seconds(job["seconds"])
        title = f"{job['command']}: {job['steps']} steps in {took}"
        parts.append(tables.RankTable(job["ranks"], title, job["seconds"]))
        parts.append(Text(job["verdict"]))
    return Group(*parts)

"""`trepak top`: who makes whom wait, live, in the jobs that run with a StragglerMonitor."""

from __future__ import annotations

import contextlib
import http.client
import json
import time
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

from rich.console import Console, Group
from rich.live import Live
from rich.markup import escape
from rich.text import Text

from trepak.scripts.light_import import light_import

sinks = light_import("trepak.tf_plugins.straggler_sinks")

_NOTHING = (
    "No job on this machine tells of its ranks. Add trepak.callbacks.StragglerMonitor() to fit's "
    "callbacks; for a job elsewhere give it a port, and ask with `trepak top --address HOST:PORT`."
)
_SECONDS = 1.0  # between two looks
_ANSWER_SECONDS = 5.0


def local_jobs(folder: Path) -> list[dict[str, Any]]:
    """Returns what the jobs of this user on this machine say; forgets those that were killed."""
    found = []
    for file in sorted(folder.glob("*.json")):
        with contextlib.suppress(OSError, ValueError):
            job = json.loads(file.read_text())
            if Path(f"/proc/{job['pid']}").exists():
                found.append(job)
            else:
                file.unlink(missing_ok=True)
    return found


def scraped_job(address: str) -> dict[str, Any]:
    """Returns what a job says at its metrics port.

    Args:
        address: HOST:PORT.

    Raises:
        OSError: nobody answers there.
        ValueError: who answers is no job of trepak.
    """
    from prometheus_client.parser import text_string_to_metric_families

    with urllib.request.urlopen(f"http://{address}/metrics", timeout=_ANSWER_SECONDS) as answer:
        text = answer.read().decode()
    samples = [s for family in text_string_to_metric_families(text) for s in family.samples]
    values = {s.name.removeprefix(sinks.PREFIX): s.value for s in samples if not s.labels}
    ranks: dict[int, dict[str, Any]] = {}
    for sample in samples:
        name = sample.name.removeprefix(sinks.PREFIX)
        if name in sinks.FIGURES:
            rank = int(sample.labels["rank"])
            entry = ranks.setdefault(rank, {"rank": rank, "host": sample.labels["host"]})
            entry[name] = sample.value
    if "steps" not in values:
        raise ValueError(f"what answers at {address} is no job with a StragglerMonitor.")
    return {
        "command": address,
        "steps": int(values["steps"]),
        "seconds": values["seconds"],
        "ranks": [ranks[rank] for rank in sorted(ranks)],
    }


def show(address: str | None, once: bool, console: Console | None = None) -> int:
    """Shows jobs until the user ends it.

    Args:
        address: HOST:PORT of a job's metrics; None for this machine's jobs.
        once: show them once.
        console: where to; standard output by default.

    Returns:
        The exit code: 1 if nobody answers at the address.
    """
    console = console or Console()
    look = (
        (lambda: [scraped_job(address)]) if address else (lambda: local_jobs(sinks.status_folder()))
    )
    try:
        if once:
            console.print(_view(look))
            return 0
        with Live(_view(look), console=console, screen=False) as live:
            while True:
                time.sleep(_SECONDS)
                live.update(_view(look))
    except KeyboardInterrupt:
        return 0
    except (OSError, ValueError, http.client.HTTPException) as error:
        console.print(f"trepak top: {address}: {error}", style="bold red", soft_wrap=True)
        return 1


def _view(look: Callable[[], list[dict[str, Any]]]) -> Any:
    jobs = look()
    if not jobs:
        return Text(_NOTHING)
    parts: list[Any] = []
    for job in jobs:
        title = f"{escape(job['command'])}: {job['steps']} steps in {job['seconds']:.3g} s"
        parts.append(sinks.table_of(job["ranks"], title, job["seconds"]))
        if "verdict" in job:
            parts.append(Text(job["verdict"]))
    return Group(*parts)

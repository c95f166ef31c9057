"""What a job in a lab prints and leaves: lines by host, losses, conditions and traffic."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from trepak.scripts.idle_watch import LEAST_IDLE
from trepak.scripts.lab import host_conditions
from trepak.scripts.lab.job import Job, Result, host_of
from trepak.scripts.lab.topology import Lab
from trepak.scripts.launcher import Line, sharing, show
from trepak.scripts.surroundings import Surroundings


def shower(lab: Lab, np: int) -> Callable[[Line], bool]:
    """Returns the function that prints a job's lines, each with its host in front."""

    def show_in_place(line: Line) -> bool:
        if line.rank is None:
            return show(line)
        rank = f", rank {line.rank}" if np > lab.hosts else ""
        return show(line, f"[{host_of(lab, np, line.rank)}{rank}] ")

    return show_in_place


def conclude(
    lab: Lab,
    job: Job,
    conditions: host_conditions.HostConditions,
    result: Result,
    surroundings: Surroundings,
    path: Path | None,
) -> int:
    """Says which ranks were lost, writes the JSON file, and returns the job's exit code."""
    for sentence in result.lost:
        print(f"trepak lab: {sentence}", file=sys.stderr)
    content = to_json(lab, job, conditions, result, surroundings)
    if not content["believable"]:
        print(
            f"trepak lab: in the median second the CPU was {result.idle_share:.0%} idle, under "
            f"{LEAST_IDLE:.0%}: this run's times are those of a busy CPU, not of the links and "
            "accelerators that were emulated. Use fewer ranks or smaller models.",
            file=sys.stderr,
        )
    if path:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(content, indent=2))
        print(f"JSON: {path}")
    return result.outcome.exit_code


def to_json(
    lab: Lab,
    job: Job,
    conditions: host_conditions.HostConditions,
    result: Result,
    surroundings: Surroundings,
) -> dict[str, Any]:
    """Returns the conditions under which a job ran, and what it sent."""
    environment = surroundings.environment(job.launcher)
    environment["cpu_idle_share_of_median_second"] = result.idle_share
    environment["sharing"] = sharing(job.np, job.launcher != "mpirun")
    return {
        "command": list(job.command),
        "np": job.np,
        "gloo": job.gloo,
        "elastic": job.elastic,
        "exit_code": result.outcome.exit_code,
        "seconds": result.seconds,
        "lost": result.lost,
        "lab": lab.to_json(),
        "unevenness": host_conditions.to_json(conditions),
        "bytes_by_class": {
            host: {"sent": traffic.sent, "received": traffic.received}
            for host, traffic in result.traffic.items()
        },
        "believable": result.idle_share >= LEAST_IDLE,
        "environment": environment,
    }

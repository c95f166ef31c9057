"""`trepak bench trace`: what a timeline costs a step of `fit`."""

from __future__ import annotations

import json
import statistics
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.console import Console

from trepak.scripts.bench_report import Claim, Options, Report, Surroundings
from trepak.scripts.launcher import JobError, launch

SUMMARY = "step time of fit with a timeline against without"

ON, OFF = "timeline on", "timeline off"
_TARGET = 1.02
_FULL, _QUICK = (40, 12), (3, 6)  # rounds, and steps per arm and round
_TIMEOUT = {True: 170.0, False: 900.0}


def measure(options: Options) -> Report:
    """Runs the bench.

    Raises:
        JobError: the processes failed.
    """
    rounds, steps = _QUICK if options.quick else _FULL
    surroundings = Surroundings()
    with tempfile.TemporaryDirectory() as folder:
        output = Path(folder) / "outcomes.json"
        module = [sys.executable, "-m", "trepak.scripts.bench_trace_worker"]
        numbers = ["--rounds", str(rounds), "--steps", str(steps)]
        with Console(stderr=True).status("training with and without a timeline"):
            job = launch(
                options.np,
                [*module, *numbers, "--output", str(output)],
                on_line=lambda line: False,
                timeout=_TIMEOUT[options.quick],
            )
        if job.exit_code:
            raise JobError(f"its processes ended with {job.exit_code}:\n{job.text()}")
        outcomes = json.loads(output.read_text())
    return summarize(outcomes, surroundings.environment(f"horovodrun -np {options.np} --mpi"))


def summarize(outcomes: Sequence[dict[str, Any]], environment: dict[str, Any]) -> Report:
    """Returns the report of what the ranks measured.

    Args:
        outcomes: by rank, `rounds`: a list of {arm: seconds of each step}, and `bytes` per step.
        environment: see `Surroundings`.
    """
    rows = []
    for number in range(len(outcomes[0]["rounds"])):
        # A step of BSP is over when all ranks have taken it.
        medians = {
            arm: statistics.median(t for one in outcomes for t in one["rounds"][number][arm])
            for arm in (ON, OFF)
        }
        rows.append(
            {
                "kind": "median step time of each round",
                "round": number + 1,
                "on_ms": 1000 * medians[ON],
                "off_ms": 1000 * medians[OFF],
                "on_to_off": medians[ON] / medians[OFF],
            }
        )
    ratio = statistics.median(row["on_to_off"] for row in rows)
    sizes = [
        {"kind": "size of the files", "rank": rank, "bytes_per_step": one["bytes"]}
        for rank, one in enumerate(outcomes)
    ]
    claims = {"trace.overhead": Claim(ratio, "x", _TARGET, "lower")}
    return Report("trace", claims, [*rows, *sizes], environment)

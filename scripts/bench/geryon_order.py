"""The paper's Figure 5: two servers answer a worker at the same time; which answer comes first?

Servers that order only what they send themselves share the worker's link. Where the network knows
the priorities, what is urgent comes as if it were alone.
"""

from __future__ import annotations

import json
import statistics
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from trepak.scripts.bench.geryon_arms import END_HOST, GERYON
from trepak.scripts.lab import state
from trepak.scripts.lab.job import Job, run
from trepak.scripts.launcher import JobError
from trepak.scripts.report import Claim

ORDER = "two servers answer one worker (Figure 5)"

_HOSTS, _WORKER = 3, "w2"
_RATE = 200_000_000  # bits per second
_WORKERS_RATE = 20_000_000  # what both answers have to share
_ELEMENTS = 256 * 1024  # of float32, of each of the two parameters
_ALONE = 32 * _ELEMENTS / _WORKERS_RATE  # seconds that one takes on the worker's link
_ROUNDS = {True: 2, False: 7}  # by whether little is to be measured
_TIMEOUT = 300.0


def measure(name: str, quick: bool) -> list[dict[str, Any]]:
    """Returns a row for the end hosts' order and one for Geryon's.

    Args:
        name: of the lab to make.
        quick: measure little.

    Raises:
        JobError: the ranks failed.
        LabError: no lab can be made here.
    """
    state.down(name)  # one that an earlier run left
    lab, _ = state.up(name, _HOSTS, _RATE, 2)
    try:
        with tempfile.TemporaryDirectory() as folder:
            output = Path(folder) / "outcomes.json"
            command = [sys.executable, "-m", "trepak.scripts.bench.geryon_order_worker"]
            command += ["--output", str(output), "--elements", str(_ELEMENTS)]
            command += ["--rounds", str(_ROUNDS[quick]), "--settle", str(3 * _ALONE)]
            job = Job(command, _HOSTS, gloo=True, links={_WORKER: _WORKERS_RATE})
            result = run(lab, job, lambda line: False, _TIMEOUT)
            if result.outcome.exit_code:
                raise JobError(f"the ranks failed:\n{result.outcome.text()}")
            return rows_of(json.loads(output.read_text()), result.idle_share)
    finally:
        state.down(name)


def rows_of(seen: Mapping[str, Sequence[Sequence[float]]], idle: float) -> list[dict[str, Any]]:
    """Returns the rows.

    Args:
        seen: by way, by round: when the less urgent and the urgent answer were there.
        idle: share of the CPU.
    """
    return [
        {
            "kind": ORDER,
            "way": way,
            "urgent_s": statistics.median(urgent for _, urgent in rounds),
            "other_s": statistics.median(other for other, _ in rounds),
            "alone_s": _ALONE,
            "cpu_idle": idle,
        }
        for way, rounds in seen.items()
    ]


def claim_of(rows: Sequence[Mapping[str, Any]]) -> dict[str, Claim]:
    """Returns how many times as long the urgent answer takes where only end hosts know of it."""
    urgent = {row["way"]: row["urgent_s"] for row in rows if row["kind"] == ORDER}
    if not urgent:
        return {}
    ratio = urgent[END_HOST] / urgent[GERYON]
    return {"geryon.urgent_speedup_vs_end_host": Claim(ratio, "x", 1.5, "higher", 2.0, True)}


def draw(axes: Any, rows: Sequence[Mapping[str, Any]]) -> None:
    """Draws when both answers were there."""
    for offset, column, label in ((-0.2, "urgent_s", "urgent"), (0.2, "other_s", "the other")):
        places = [number + offset for number in range(len(rows))]
        axes.bar(places, [row[column] for row in rows], 0.4, label=label)
    axes.axhline(_ALONE, color="black", linewidth=0.8, linestyle="--")
    axes.set_xticks(range(len(rows)), [row["way"] for row in rows])
    axes.set(ylabel="seconds", title="two servers answer one worker")
    axes.set_ylim(top=1.3 * max(row[column] for row in rows for column in ("urgent_s", "other_s")))
    axes.legend(fontsize="small", ncols=2)

"""The paper's Figure 5: two servers answer a worker at the same time; which answer comes first?

Servers that order only what they send themselves share the worker's link. Where the network knows
the priorities, what is urgent comes as if it were alone.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from typing import Any

from trepak.scripts.bench import plots
from trepak.scripts.bench.exchanges import END_HOST, GERYON
from trepak.scripts.bench.ranks import lab_of, run_in

ORDER = "two servers answer one worker (Figure 5)"

_HOSTS = 3
WORKER = 2  # the rank that waits; the others run a server each
_RATE = 200_000_000  # bits per second
_WORKERS_RATE = 20_000_000  # what both answers have to share
_ELEMENTS = 256 * 1024  # of float32, of each of the two parameters
_ALONE = 32 * _ELEMENTS / _WORKERS_RATE  # seconds that one takes on the worker's link
_ROUNDS = {True: 2, False: 7}  # by whether little is to be measured
_TIMEOUT = 300.0


def measure(quick: bool) -> list[dict[str, Any]]:
    """Returns a row for the end hosts' order and one for Geryon's.

    Args:
        quick: measure little.

    Raises:
        JobError: the ranks failed.
        LabError: no lab can be made here.
    """
    spec = {"elements": _ELEMENTS, "rounds": _ROUNDS[quick], "settle": 3 * _ALONE}
    links = {f"w{WORKER}": _WORKERS_RATE}
    with lab_of(_HOSTS, _RATE, packet=0) as lab:
        seen, idle = run_in(lab, "geryon_order_worker", spec, _TIMEOUT, links=links)
        return rows_of(seen[WORKER], idle)


def rows_of(seen: Mapping[str, Sequence[Sequence[float]]], idle: float) -> list[dict[str, Any]]:
    """Returns the rows.

    Args:
        seen: by method, by round: when the less urgent and the urgent answer were there.
        idle: share of the CPU.
    """
    return [
        {
            "kind": ORDER,
            "way": method,
            "urgent_s": statistics.median(urgent for _, urgent in rounds),
            "other_s": statistics.median(other for other, _ in rounds),
            "alone_s": _ALONE,
            "cpu_idle": idle,
        }
        for method, rounds in seen.items()
    ]


def speedup_of(rows: Sequence[Mapping[str, Any]]) -> float:
    """Returns how many times as long the urgent answer takes where only end hosts know of it."""
    urgent = {row["way"]: row["urgent_s"] for row in rows}
    return float(urgent[END_HOST] / urgent[GERYON])


def draw(axes: Any, rows: Sequence[Mapping[str, Any]]) -> None:
    """Draws when both answers were there."""
    answers = {"urgent": "urgent_s", "the other": "other_s"}
    seconds = {
        label: {row["way"]: row[column] for row in rows} for label, column in answers.items()
    }
    plots.bars(axes, [row["way"] for row in rows], seconds)
    plots.mark(axes, _ALONE)
    axes.set(ylabel="seconds", title="two servers answer one worker")
    axes.set_ylim(top=1.3 * max(max(of.values()) for of in seconds.values()))
    axes.legend(fontsize="small", ncols=2)

"""Swim lanes of an elastic job: each task's work by iteration, and its chunks (Figures 6, 11)."""

from __future__ import annotations

from typing import Any

from trepak.scripts.bench.chicle_elastic_lab import LANES
from trepak.scripts.report import Report

_SHADES = ("0.35", "0.65")  # of even and odd iterations


def draw(report: Report, figure: Any) -> None:
    """Draws who worked when, and who had how many chunks."""
    lanes = [row for row in report.rows if row["kind"] == LANES]
    hosts = sorted({row["host"] for row in lanes})
    figure.set_size_inches(9, 4.5)
    above, below = figure.subplots(2, 1, sharex=True)
    for number, host in enumerate(hosts):
        mine = [row for row in lanes if row["host"] == host]
        bars = [(row["begin"], row["end"] - row["begin"]) for row in mine]
        shades = [_SHADES[row["iteration"] % 2] for row in mine]
        above.broken_barh(bars, (number - 0.4, 0.8), facecolors=shades)
        ends = [row["begin"] for row in mine] + [mine[-1]["end"]]
        chunks = [row["chunks"] for row in mine] + [0]
        below.step(ends, chunks, where="post", label=host)
    above.set_yticks(range(len(hosts)), hosts)
    above.set_title("work of each host's task; even and odd iterations")
    below.set(xlabel="seconds, pauses included", ylabel="chunks", ylim=(0, None))
    below.legend(fontsize="small")

"""The paper's figures, from what `trepak bench elastic_bsp` measured."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import Any

from trepak.scripts.bench.elastic_bsp_report import CURVES, METHODS
from trepak.scripts.report import Report

_Rows = Sequence[Mapping[str, Any]]


def draw(report: Report, figure: Any) -> None:
    """Draws accuracies over time (Figure 4), steps per second, waiting; in the same colours."""
    curves = [row for row in report.rows if row["kind"] == CURVES]
    found = [row for row in report.rows if row["kind"] == METHODS]
    names = list(dict.fromkeys(row["case"] for row in curves))
    columns = min(2, len(names))
    rows = -(-len(names) // columns)
    figure.set_size_inches(max(10, 5 * columns), 4 * (rows + 1))
    above, below = figure.subfigures(2, 1, height_ratios=[rows, 1])
    methods = list(dict.fromkeys(row["way"] for row in curves))
    colours = {method: f"C{number}" for number, method in enumerate(methods)}
    places = above.subplots(rows, columns, squeeze=False).flat
    for axes, name in itertools.zip_longest(places, names):
        if name is None:
            axes.set_axis_off()
        else:
            _accuracies(axes, [row for row in curves if row["case"] == name], name, colours)
    steps, waiting = below.subplots(1, 2)
    _bars(steps, found, "steps_per_s", "steps per second, of BSP's", colours)
    _bars(waiting, found, "waiting_ms_per_step", "waiting per step, ms", colours)


def _accuracies(axes: Any, rows: _Rows, title: str, colours: Mapping[str, str]) -> None:
    for method, colour in colours.items():
        trials = [row for row in rows if row["way"] == method]
        if trials:
            median = sorted(trials, key=lambda row: float(row["final_accuracy"]))[len(trials) // 2]
            seconds, _, accuracies = zip(*median["curve"], strict=True)
            axes.plot(seconds, accuracies, color=colour, linewidth=0.8, label=method)
    if rows[0]["target"]:
        axes.axhline(rows[0]["target"], color="black", linewidth=0.8, linestyle="--")
    axes.set(
        xlabel="seconds (the trial of median accuracy)", ylabel="held-out accuracy", title=title
    )
    axes.legend(fontsize="x-small")


def _bars(axes: Any, rows: _Rows, figure: str, title: str, colours: Mapping[str, str]) -> None:
    names = list(dict.fromkeys(row["case"] for row in rows))
    width = 0.8 / max(1, len(colours))
    for number, (method, colour) in enumerate(colours.items()):
        of = {row["case"]: row[figure] or 0.0 for row in rows if row["way"] == method}
        places = [i + (number - (len(colours) - 1) / 2) * width for i in range(len(names))]
        axes.bar(places, [of.get(name, 0.0) for name in names], width, color=colour, label=method)
    if figure == "steps_per_s":
        bounds = {row["case"]: row["bound"] for row in rows}
        for place, name in enumerate(names):
            axes.hlines(bounds[name], place - 0.45, place + 0.45, color="black", linewidth=0.8)
    axes.set_xticks(range(len(names)), names, fontsize="small")
    axes.set(title=title)

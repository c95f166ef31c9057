"""The paper's figures, from what `trepak bench elastic_bsp` measured."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from typing import Any

from trepak.scripts.bench import plots
from trepak.scripts.bench.elastic_bsp_report import CURVES, METHODS
from trepak.scripts.report import Report


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


def _accuracies(axes: Any, rows: plots.Rows, title: str, colours: Mapping[str, str]) -> None:
    for method, colour in colours.items():
        trials = plots.of_method(rows, method)
        if trials:
            median = sorted(trials, key=lambda row: float(row["final_accuracy"]))[len(trials) // 2]
            seconds, _, accuracies = zip(*median["curve"], strict=True)
            axes.plot(seconds, accuracies, color=colour, linewidth=0.8, label=method)
    if rows[0]["target"]:
        plots.mark(axes, rows[0]["target"])
    axes.set(
        xlabel="seconds (the trial of median accuracy)", ylabel="held-out accuracy", title=title
    )
    axes.legend(fontsize="x-small")


def _bars(axes: Any, rows: plots.Rows, figure: str, title: str, colours: Mapping[str, str]) -> None:
    names = list(dict.fromkeys(row["case"] for row in rows))
    heights = {
        method: {row["case"]: row[figure] for row in plots.of_method(rows, method)}
        for method in colours
    }
    plots.bars(axes, names, heights, colours, fontsize="small")
    if figure == "steps_per_s":
        plots.bounds(axes, names, rows)
    axes.set(title=title)

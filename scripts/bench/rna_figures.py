"""The thesis' figures, from what `trepak bench rna` measured."""

from __future__ import annotations

import statistics
from typing import Any

from trepak.scripts.bench import plots, rna_probes
from trepak.scripts.bench.rna_cases import SCALING
from trepak.scripts.bench.rna_report import CURVES, GAINS
from trepak.scripts.bench.uneven.comparison import TRAININGS
from trepak.scripts.bench.uneven.methods import ADPSGD, EAGER, GROUPED, HOROVOD, RNA
from trepak.scripts.report import Report

_METHODS = (HOROVOD, EAGER, ADPSGD, RNA, GROUPED)
_COLOURS = dict(zip(_METHODS, ("C7", "C1", "C2", "C0", "C3"), strict=True))
_ROUNDS = 100
_COLUMNS = 4


def draw(report: Report, figure: Any) -> None:
    """Draws losses and training accuracies over time (Figure 5.4), and Figures 5.3, 5.5 to 5.7."""
    curves = [row for row in report.rows if row["kind"] == CURVES and len(row["curve"]) > 2]
    names = list(dict.fromkeys(row["case"] for row in curves))
    rows = 1 + -(-len(names) // _COLUMNS)
    figure.set_size_inches(4.2 * _COLUMNS, 4 * rows)
    grid = figure.subplots(rows, _COLUMNS, squeeze=False)
    places = list(grid[:-1].flat)
    for axes, name in zip(places, names, strict=False):
        of_case = [row for row in curves if row["case"] == name]
        _losses(axes, of_case, name)
        if not of_case[0]["target"]:  # trained until early stopping ends it
            _training_accuracies(axes.twinx(), of_case)
    for axes in places[len(names) :]:
        axes.set_axis_off()
    gains = [row for row in report.rows if row["kind"] == GAINS and row["case"] in names]
    timed = [row for row in gains if row["time_to_loss"] is not None]
    _bars(grid[-1][0], timed, "time_to_loss", "thesis", "time to the target")
    _bars(grid[-1][1], gains, "gradients_per_s", "thesis_per_step", "gradients per second")
    _throughput(grid[-1][2], [row for row in report.rows if row["kind"] == TRAININGS])
    _probes(grid[-1][3])


def _losses(axes: Any, rows: plots.Rows, title: str) -> None:
    for method in _METHODS:
        for number, row in enumerate(plots.of_method(rows, method)):
            seconds, losses, _ = zip(*row["curve"], strict=True)  # no line where a loss is None
            label = None if number else method
            axes.plot(seconds, losses, color=_COLOURS[method], linewidth=0.8, label=label)
    if rows[0]["target"]:
        plots.mark(axes, rows[0]["target"])
    axes.set_yscale("log")
    axes.set(xlabel="seconds", ylabel="held-out loss", title=title)
    axes.legend(fontsize="x-small")


def _training_accuracies(axes: Any, rows: plots.Rows) -> None:
    for row in rows:
        if len(row["training_accuracies"]) == len(row["curve"]):  # of some, the last one is kept
            seconds = [point[0] for point in row["curve"]]
            accuracies, colour = row["training_accuracies"], _COLOURS[row["way"]]
            axes.plot(seconds, accuracies, color=colour, linewidth=0.5, linestyle=":")
    axes.set(ylabel="training accuracy (dotted)", ylim=(0, 1.02))


def _bars(axes: Any, gains: plots.Rows, figure: str, marks: str, title: str) -> None:
    names = list(dict.fromkeys(row["case"] for row in gains))
    of = {method: plots.of_method(gains, method) for method in _METHODS}
    heights = {
        method: {row["case"]: row[figure] for row in rows} for method, rows in of.items() if rows
    }
    ticks: dict[str, Any] = {"fontsize": "x-small", "rotation": 30, "ha": "right"}
    for method, places in plots.bars(axes, names, heights, _COLOURS, **ticks).items():
        thesis = {row["case"]: row[marks] for row in of[method]}
        known = [(place, thesis.get(name)) for place, name in zip(places, names, strict=True)]
        marked = [(place, gain) for place, gain in known if gain]
        if marked:
            axes.plot(*zip(*marked, strict=True), "kx", markersize=4, zorder=3)
    plots.bounds(axes, names, gains)
    axes.set(ylabel="gain over Horovod (line: bound, x: thesis)", title=title)


def _throughput(axes: Any, rows: plots.Rows) -> None:
    scaled = [row for row in rows if row["case"].split(" on ")[0] == SCALING]
    for method in _METHODS:
        of = plots.of_method(scaled, method)
        by_size: dict[int, list[float]] = {size: [] for size in sorted(row["ranks"] for row in of)}
        for row in of:
            by_size[row["ranks"]].append(row["gradients_per_s"])
        if by_size:
            rates = [statistics.median(found) for found in by_size.values()]
            axes.plot(list(by_size), rates, "o-", color=_COLOURS[method], label=method)
    axes.set(xlabel="ranks", ylabel="gradients per second", title=f"{SCALING} (Figure 5.6)")
    if scaled:
        axes.legend(fontsize="x-small")


def _probes(axes: Any) -> None:
    boxes = []
    for number, (name, simulate) in enumerate(rna_probes.READINGS.items()):
        times = [simulate(choices, _ROUNDS, seed=0) for choices in rna_probes.CHOICES]
        places = [i + 0.4 * number - 0.2 for i in range(len(times))]
        drawn = axes.boxplot(
            times, positions=places, widths=0.3, whis=(5, 95), showfliers=False, manage_ticks=False
        )
        for line in (*drawn["boxes"], *drawn["medians"]):
            line.set_color(f"C{number}")
        boxes.append((drawn["boxes"][0], name))
    axes.legend(*zip(*boxes, strict=True), fontsize="x-small")
    axes.set_xticks(
        range(len(rna_probes.CHOICES)), [str(choices) for choices in rna_probes.CHOICES]
    )
    axes.set(xlabel="choices", ylabel="response in ms", title="probes, simulated (Figure 5.7)")

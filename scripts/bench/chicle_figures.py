"""The pictures of `trepak bench chicle`: Figures 1, 4, 5, 9, 10, and what 6 comes to."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from trepak.scripts.bench import plots
from trepak.scripts.bench.chicle_report import BALANCING, CURVES, EPOCHS
from trepak.scripts.bench.chicle_trainings import UNI
from trepak.scripts.report import Report

_LONGEST = 4.0  # of what uni-tasks take: slower ways leave the picture


def draw(report: Report, figure: Any) -> None:
    """Draws epochs by tasks, and by scenario what was reached over time and over epochs."""
    curves = [row for row in report.rows if row["kind"] == CURVES]
    sets = list(dict.fromkeys(_data_set(row) for row in curves))
    scenarios = list(dict.fromkeys(row["scenario"] for row in curves))
    figure.set_size_inches(3.1 * (1 + len(scenarios)), 4.0 * len(sets))
    places = figure.subplots(2 * len(sets), 1 + len(scenarios), squeeze=False)
    for number, data_set in enumerate(sets):
        above, below = places[2 * number : 2 * number + 2]
        _epochs(above[0], [row for row in report.rows if row["kind"] == EPOCHS], data_set)
        _balancing(below[0], [row for row in report.rows if row["kind"] == BALANCING], data_set)
        for axes, other, scenario in zip(above[1:], below[1:], scenarios, strict=True):
            rows = [
                row for row in curves if _data_set(row) == data_set and row["scenario"] == scenario
            ]
            axes.set_title(f"{_title(data_set)}: {scenario.replace('_', '-')}")
            _curves(axes, rows, 1, "virtual seconds")
            _curves(other, rows, 0, "epochs")
        above[-1].legend(fontsize="xx-small", loc="upper right")


def _data_set(row: Mapping[str, Any]) -> tuple[str, str]:
    return row["algorithm"], row["data_set"]


def _title(data_set: tuple[str, str]) -> str:
    return ", ".join(data_set).replace("_", " ")


def _epochs(axes: Any, rows: plots.Rows, data_set: tuple[str, str]) -> None:
    for row in rows:
        if _data_set(row) == data_set:
            epochs = {
                int(name.removeprefix("tasks_")): value or 0.0
                for name, value in row.items()
                if name.startswith("tasks_")
            }
            batch = row["batch_of_16"]
            ticks = [f"{tasks if batch is None else batch * tasks // 16}" for tasks in epochs]
            axes.bar(ticks, list(epochs.values()), color="0.6")
            axes.set_title(
                f"{_title(data_set)}: to {row['goal']:g} ({'1b' if batch is None else '1a'})"
            )
            axes.set_xlabel("tasks" if batch is None else "samples of an iteration")
            axes.tick_params(axis="x", labelsize="x-small")
    axes.set_ylabel("epochs")


def _balancing(axes: Any, rows: plots.Rows, data_set: tuple[str, str]) -> None:
    units = [row["units"] for row in rows if _data_set(row) == data_set]
    axes.plot(range(1, len(units) + 1), units, color="black", marker=".")
    axes.set(xlabel="iteration, 4 of 16 nodes slowed", ylabel="time units", ylim=(0, None))


def _curves(axes: Any, rows: plots.Rows, along: int, label: str) -> None:
    """Draws what was reached over epochs (0) or seconds (1)."""
    for number, row in enumerate(rows):
        style = {"color": "black", "lw": 2.0} if row["way"] == UNI else {"color": f"C{number}"}
        points = row["curve"]
        axes.plot([p[along] for p in points], [p[2] for p in points], label=row["way"], **style)
        if row["way"] == UNI:
            axes.set_xlim(0, _LONGEST * points[-1][along])
            least = min(p[2] for p in points)
            axes.set_ylim(least / 2, 1.2)
    plots.mark(axes, rows[0]["goal"])
    axes.set(xlabel=label, ylabel=rows[0]["value"], yscale="log")

"""Draws a training of clicks: how it went, what each rank had, and how tables were cut."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

_LOSS, _AUC = "#d95f02", "#1f5f99"
_SHARDINGS = {"row": "#1f5f99", "column": "#7570b3", "table": "#b0b0b0"}


def draw(title: str, progress: Any, plan: Any, counted: list[Counter[str]], path: Path) -> None:
    """Writes a PNG.

    Args:
        title: of the picture.
        progress: a `ctr_progress.Progress`.
        plan: the tables'.
        counted: by rank, what its tables have counted.
        path: the file to write.
    """
    from matplotlib.figure import Figure

    figure = Figure(figsize=(12, 3.8), dpi=150, layout="constrained")
    figure.suptitle(title, fontsize=11)
    learned, shared, cut = figure.subplots(1, 3)
    _learned(learned, progress)
    _shared(shared, plan.bytes_by_rank(), [one["rows_looked_up"] for one in counted])
    _cut(cut, plan)
    for axes in (learned, shared, cut):
        axes.spines[["top", "right"]].set_visible(False)
    figure.savefig(path)


def _learned(axes: Any, progress: Any) -> None:
    from matplotlib.ticker import EngFormatter

    axes.plot(progress.samples, progress.loss, color=_LOSS, marker="o", markersize=3)
    axes.set(xlabel="samples trained", ylabel="loss in training", xlim=(0, None))
    axes.yaxis.label.set_color(_LOSS)
    axes.xaxis.set_major_formatter(EngFormatter(sep=""))
    right = axes.twinx()
    right.plot(progress.samples, progress.auc, color=_AUC, marker="o", markersize=3)
    if progress.data.best is not None:
        right.axhline(progress.data.best, color=_AUC, linewidth=0.8, linestyle=":")
        place = (progress.samples[-1] / 2, progress.data.best)
        right.annotate("best possible", place, color=_AUC, ha="center", va="bottom")
    right.set_ylabel("AUC, held out", color=_AUC)
    right.spines["top"].set_visible(False)


def _shared(axes: Any, sizes: list[int], look_ups: list[int]) -> None:
    """Draws each rank's share of the bytes of tables and of the rows looked up."""
    from matplotlib.ticker import MaxNLocator, PercentFormatter

    for shift, color, label, found in (
        (-0.2, _AUC, "bytes of tables", sizes),
        (0.2, _LOSS, "rows looked up", look_ups),
    ):
        places = [rank + shift for rank in range(len(found))]
        axes.bar(places, [one / sum(found) for one in found], 0.38, label=label, color=color)
    axes.axhline(1 / len(sizes), color="black", linewidth=0.8, linestyle=":")
    axes.set(xlabel="rank", ylabel="share")
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.yaxis.set_major_formatter(PercentFormatter(1.0))
    axes.set_ylim(0, 1.35 * axes.get_ylim()[1])
    axes.legend(frameon=False, loc="upper center", ncols=2)


def _cut(axes: Any, plan: Any) -> None:
    """Draws the tables' sizes, the largest first, in the colours of their shardings."""
    sizes = [table.rows * table.columns for table in plan.tables]
    order = sorted(range(len(sizes)), key=lambda number: -sizes[number])
    for sharding, color in _SHARDINGS.items():
        places = [p for p, number in enumerate(order) if plan.shardings[number] == sharding]
        if places:
            values = [sizes[order[place]] for place in places]
            axes.bar(places, values, 1.0, label=f"{sharding} ({len(places)})", color=color)
    axes.set_yscale("log")
    axes.set(xlabel="table, by size", ylabel="weights")
    axes.legend(frameon=False, title="sharding")

"""How full Dymem's pool was over a step: as text for a terminal, and as a picture."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from trepak.tf_plugins.callbacks.memory_figures import format_bytes
from trepak.tf_plugins.callbacks.straggler_tables import format_seconds

Curve = Sequence[Sequence[float]]  # seconds, live bytes and occupied bytes, until the next one
_LIVE, _OCCUPIED = "#1f5f99", "#d95f02"
_EIGHTHS = " ▁▂▃▄▅▆▇█"
_GAPS = "░"


def text_curve(curve: Curve, width: int = 64, height: int = 8) -> str:
    """Returns the curve as lines of blocks: live bytes are solid, gaps between them are light.

    Args:
        curve: at least one point.
        width: columns of the curve; labels come on top.
        height: lines of the curve, up to the most that was occupied.
    """
    columns = _columns(curve, width)
    most = max(occupied for _, occupied in columns) or 1.0
    labels = {height - 1: format_bytes(most), 0: "0"}
    wide = max(map(len, labels.values()))
    lines = []
    for floor in reversed(range(height)):
        cells = (
            _cell(live / most * height - floor, occupied / most * height - floor)
            for live, occupied in columns
        )
        lines.append(f"{labels.get(floor, ''):>{wide}} ┤{''.join(cells).rstrip()}")
    took = format_seconds(curve[-1][0])
    lines.append(f"{'':>{wide}} └{'─' * width}")
    lines.append(f"{'':>{wide}}  0{took:>{width - 1}}   {_EIGHTHS[-1]} live {_GAPS} gaps")
    return "\n".join(lines)


def _columns(curve: Curve, width: int) -> list[tuple[float, float]]:
    """Returns live and occupied bytes of each column: the most within its time."""
    end = curve[-1][0] or 1.0
    columns = [(0.0, 0.0)] * width
    # A point holds until the next one, so it is in all columns that its time touches.
    for point, after in zip(curve, [*curve[1:], curve[-1]], strict=True):
        first, last = (min(width - 1, int(time / end * width)) for time in (point[0], after[0]))
        for column in range(first, last + 1):
            live, occupied = columns[column]
            columns[column] = max(live, point[1]), max(occupied, point[2])
    return columns


def _cell(live: float, occupied: float) -> str:
    if live > 0:
        return _EIGHTHS[max(1, round(8 * min(live, 1.0)))]
    return _GAPS if occupied > 0 else " "


def draw_curve(curve: Curve, limit: float, path: Path) -> None:
    """Writes a picture of the curve.

    Args:
        curve: at least one point.
        limit: the pool's bytes, a dashed line if it is near.
        path: the file to write; its suffix says which format.

    Raises:
        OSError: it can't be written.
        ValueError: there is no such format.
    """
    from matplotlib.figure import Figure

    # A Figure of its own, instead of pyplot's: no display is looked for, no state is left behind.
    figure = Figure(figsize=(9, 3.8), dpi=150, layout="constrained")
    axes = figure.subplots()
    axes.set_title("Dymem's pool over a step", fontsize=11)
    times, live, occupied = zip(*curve, strict=True)
    milliseconds = [1e3 * time for time in times]
    megabytes = [[size / 2**20 for size in sizes] for sizes in (live, occupied)]
    axes.fill_between(milliseconds, megabytes[0], step="post", color=_LIVE, label="live")
    axes.step(milliseconds, megabytes[1], where="post", color=_OCCUPIED, label="occupied")
    if limit < 2 * max(occupied):  # else it would press the curve flat
        axes.axhline(limit / 2**20, color="black", linewidth=0.8, linestyle="--", label="limit")
    axes.set_xlabel("time of the step [ms]")
    axes.set_ylabel("MiB")
    axes.set_ylim(bottom=0)
    axes.grid(alpha=0.25)
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(loc="upper left", frameon=False)
    figure.savefig(path)

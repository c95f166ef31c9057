"""What the figures of several benches have in common."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

Rows = Sequence[Mapping[str, Any]]


def of_method(rows: Rows, method: str) -> list[Mapping[str, Any]]:
    """Returns a method's rows."""
    return [row for row in rows if row["way"] == method]


def mark(axes: Any, value: float) -> None:
    """Draws a dashed line across: a target, or what is expected."""
    axes.axhline(value, color="black", linewidth=0.8, linestyle="--")


def bars(
    axes: Any,
    names: Sequence[str],
    heights: Mapping[str, Mapping[str, float | None]],
    colours: Mapping[str, str] | None = None,
    horizontal: bool = False,
    **ticks: Any,
) -> dict[str, list[float]]:
    """Draws a group of bars for each name, with a bar for each method.

    Args:
        axes: where to.
        names: of the groups.
        heights: by method, by name; None, or none, is 0.
        colours: by method; matplotlib's, if it is not given.
        horizontal: the groups lie below each other.
        ticks: how the names are written; see matplotlib's `set_xticks`.

    Returns:
        By method, the places of its bars.
    """
    width, found = 0.8 / max(1, len(heights)), {}
    for number, (method, of) in enumerate(heights.items()):
        first = (number - (len(heights) - 1) / 2) * width
        found[method] = [first + group for group in range(len(names))]
        values = [of.get(name) or 0.0 for name in names]
        colour = None if colours is None else colours[method]
        draw = axes.barh if horizontal else axes.bar
        draw(found[method], values, width, color=colour, label=method)
    (axes.set_yticks if horizontal else axes.set_xticks)(range(len(names)), names, **ticks)
    return found


def bounds(axes: Any, names: Sequence[str], rows: Rows) -> None:
    """Draws the `bound` of each name's case across its group of bars."""
    of = {row["case"]: row["bound"] for row in rows}
    for place, name in enumerate(names):
        axes.hlines(of[name], place - 0.45, place + 0.45, color="black", linewidth=0.8)

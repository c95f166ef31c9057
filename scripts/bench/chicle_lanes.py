"""Swim lanes of real iterations: when each task worked, and on how many chunks (Figure 6).

python -m trepak.scripts.bench.chicle_lanes chicle.json lanes.png
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from trepak.tf_plugins.chicle.trainer import TaskMetrics

LANES = "when tasks worked"

Rows = Sequence[Mapping[str, Any]]

_DRAWN = 16  # iterations, where a training has more


class LaneWatch:
    """Notes a training's iterations on the rank that asks, which hears of all tasks.

    Attributes:
        iterations: by iteration, when it began and ended, in seconds since the watch was made or
            restarted, and by task what it did.
    """

    def __init__(self, now: float) -> None:
        """Begins to watch; the first iteration begins now."""
        self._first = self._began = now
        self.iterations: list[dict[str, Any]] = []

    def ended(self, now: float, tasks: Mapping[int, TaskMetrics]) -> None:
        """Is told that an iteration has ended, chunks have moved, and the next one begins."""
        about = {
            str(task): {"seconds": one.seconds, "chunks": one.chunks, "samples": one.samples}
            for task, one in tasks.items()
        }
        self.iterations.append(
            {"begin": self._began - self._first, "end": now - self._first, "tasks": about}
        )
        self._began = now


def rows_of(iterations: Rows, **about: Any) -> list[dict[str, Any]]:
    """Returns a row for each task's part of each iteration; see `draw`.

    Args:
        iterations: of a `LaneWatch`.
        about: what each row begins with.
    """
    return [
        {
            "kind": LANES,
            **about,
            "iteration": number,
            "task": int(task),
            "begin": one["begin"],
            **done,
        }
        for number, one in enumerate(iterations)
        for task, done in one["tasks"].items()
    ]


def draw(rows: Rows, lanes: Any, chunks: Any = None, until: float | None = None) -> None:
    """Draws a training: a lane for each task, with a bar for each of its iterations.

    Args:
        rows: of one training, of `rows_of`.
        lanes: axes for the bars, over seconds.
        chunks: axes for how many chunks each task had; None: they aren't drawn.
        until: the second at which the picture ends; None: with the last bar.
    """
    tasks = sorted({row["task"] for row in rows})
    for place, task in enumerate(tasks):
        mine = [row for row in rows if row["task"] == task]
        bars = [(row["begin"], row["seconds"]) for row in mine]
        style = {"color": f"C{place}", "edgecolor": "white", "linewidth": 0.5}
        lanes.broken_barh(bars, (place - 0.4, 0.8), **style)
        if chunks is not None:
            ends = [*(row["begin"] for row in mine), mine[-1]["begin"] + mine[-1]["seconds"]]
            counts = [row["chunks"] for row in mine]
            chunks.stairs(counts, ends, color=f"C{place}", baseline=None, label=_named(task))
    lanes.set_yticks(range(len(tasks)), [_named(task) for task in tasks])
    until = max(row["begin"] + row["seconds"] for row in rows) if until is None else until
    lanes.set(xlabel="seconds", xlim=(0, until), ylim=(len(tasks) - 0.5, -0.5))
    if chunks is not None:
        chunks.set(xlabel="seconds", ylabel="chunks", xlim=(0, until), ylim=(0, None))
        chunks.legend(fontsize="xx-small", ncols=2)


def _named(task: int | str) -> str:
    return f"task {task}" if isinstance(task, int) else task


def draw_each(rows: Rows, figure: Any) -> None:
    """Draws trainings side by side, each from its beginning to its end, above their chunks.

    Args:
        rows: of the kind `LANES`, with a `training`; others are left out.
        figure: of matplotlib.
    """
    lanes = [row for row in rows if row["kind"] == LANES]
    trainings = list(dict.fromkeys(row["training"] for row in lanes))
    places = figure.subplots(2, len(trainings), sharex="col", squeeze=False)
    for training, (above, below) in zip(trainings, places.T, strict=True):
        draw([row for row in lanes if row["training"] == training], above, below)
        above.set_title(training)


def draw_all(rows: Rows, figure: Any) -> None:
    """Draws trainings side by side: without policies, below with one, then their chunks.

    Args:
        rows: of the kind `LANES`, with a `training` and its `policy`.
        figure: of matplotlib.
    """
    lanes = [row for row in rows if row["kind"] == LANES]
    trainings = list(dict.fromkeys(row["training"] for row in lanes))
    policies = list(dict.fromkeys(row["policy"] for row in lanes))
    places = figure.subplots(1 + len(policies), len(trainings), squeeze=False)
    for column, training in enumerate(trainings):
        of = [row for row in lanes if row["training"] == training]
        until = max(row["begin"] + row["seconds"] for row in of if row["iteration"] < _DRAWN)
        for line, policy in enumerate(policies):
            mine = [row for row in of if row["policy"] == policy]
            chunks = places[-1][column] if policy == policies[-1] else None
            draw(mine, places[line][column], chunks, until)
            places[line][column].set_title(f"{training}, {policy}")


def main(report: Path, picture: Path) -> None:
    """Draws the lanes of a bench's JSON file."""
    from matplotlib.figure import Figure

    rows = json.loads(report.read_text())["rows"]
    figure = Figure(figsize=(11, 7), layout="constrained")
    draw_all(rows, figure)
    figure.savefig(picture, dpi=100)


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))

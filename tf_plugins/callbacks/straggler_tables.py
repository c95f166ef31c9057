"""A StragglerMonitor's table for a terminal: every header and number whole, in 80 columns.

Columns that do not fit go below the others, with the ranks again. Of a host's name the middle may
be left out: the rank says which one it is.
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from rich import box
from rich.console import Console, ConsoleOptions, RenderResult
from rich.table import Table
from rich.text import Text

from trepak.horovod_ext.straggler_verdict import verdict_of

if TYPE_CHECKING:  # `trepak top` uses this module without TensorFlow
    from trepak.horovod_ext.stragglers import StragglerTable

LEAST_SHOWN = 0.05  # share of the time; a rank that others waited for longer is shown in red
_GAP = 2  # spaces between columns
_LEAST_HOST, _MOST_HOST = 8, 30  # letters of a host's name
_WHOLE_BELOW = 10**7  # counts from there on are rounded
_UNITS = ((86400.0, "d", 1e4), (3600.0, "h", 1e4), (1.0, "s", 1e4), (1e-3, "ms", 1e3))

Rank = Mapping[str, Any]


@dataclass(frozen=True)
class _Column:
    header: str
    cells: list[str]

    @property
    def width(self) -> int:
        return max(map(len, [self.header, *self.cells]))


class RankTable:
    """Ranks as a table; those that others waited for are red."""

    def __init__(self, ranks: Sequence[Rank], title: str, seconds: float) -> None:
        """Makes the table.

        Args:
            ranks: `RankReport`s as dictionaries; "waited_for" and "steps" may be missing.
            title: what stands above.
            seconds: what all steps took.
        """
        self._title = title
        self._ranks = [str(rank["rank"]) for rank in ranks]
        self._hosts = [str(rank["host"]) for rank in ranks]
        self._red = [rank["delayed_seconds"] > LEAST_SHOWN * seconds for rank in ranks]
        self._columns = [
            _Column(header, [show(rank) for rank in ranks]) for header, show in _figures(ranks)
        ]

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Yields the title and as many blocks as the width asks for."""
        yield Text(self._title, style="italic")
        gap, blocks = self._layout(options.max_width)
        for number, columns in enumerate(blocks):
            if number:
                yield Text("")
            yield self._block(columns, gap)

    def _layout(self, width: int) -> tuple[int, list[list[_Column]]]:
        """Returns the spaces between columns, and the columns of each block."""
        first = _Column("rank", self._ranks)
        others = sum(column.width for column in [first, *self._columns])
        for gap in (_GAP, 1):
            room = width - others - gap * (1 + len(self._columns))
            if room >= min(_LEAST_HOST, self._hosts_of(_MOST_HOST).width):
                return gap, [[first, self._hosts_of(min(room, _MOST_HOST)), *self._columns]]
        blocks = [[first, self._hosts_of(_MOST_HOST)]]
        for column in self._columns:
            beside = sum(one.width + _GAP for one in blocks[-1])
            if beside + column.width > width and len(blocks[-1]) > 1:
                blocks.append([first])
            blocks[-1].append(column)
        return _GAP, blocks

    def _hosts_of(self, most: int) -> _Column:
        return _Column("host", [_shortened(host, most) for host in self._hosts])

    def _block(self, columns: Sequence[_Column], gap: int) -> Table:
        table = Table(
            box=box.HORIZONTALS, show_edge=False, pad_edge=False, padding=(0, gap - 1, 0, 0)
        )
        for column in columns:
            table.add_column(
                Text(column.header),
                justify="left" if column.header == "host" else "right",
                min_width=column.width,
                no_wrap=True,
            )
        for number, red in enumerate(self._red):
            cells = [Text(column.cells[number]) for column in columns]
            table.add_row(*cells, style="bold red" if red else None)
        return table


def _figures(ranks: Sequence[Rank]) -> list[tuple[str, Callable[[Rank], str]]]:
    """Returns header and cell of each figure that is shown; which ones, what ranks did tells."""
    times = [("computed", _time_of("compute_seconds")), ("waited", _time_of("waited_seconds"))]
    odd = [("not finite", _count_of("not_finite"))] if _any(ranks, "not_finite") else []
    if _any(ranks, "exchanged_seconds"):
        exchanged = ("exchanged", _time_of("exchanged_seconds"))
        barriers = ("barriers", _count_of("rounds"))
        return [("steps", _count_of("steps")), *times, exchanged, barriers, *odd]
    if _any(ranks, "rounds"):
        return [
            ("steps", _count_of("steps")),
            *times,
            ("rounds", _count_of("rounds")),
            ("ranks in one", lambda rank: _number(rank["contributors"])),
            ("null", _share_of("null_share")),
            ("staleness", lambda rank: _number(rank["staleness"])),
            ("dropped", _count_of("dropped")),
            *odd,
        ]
    return [
        *times,
        ("for rank", lambda rank: _whom(rank.get("waited_for"))),
        ("made others wait", _time_of("delayed_seconds")),
        ("last in", _share_of("last_share")),
    ]


def _any(ranks: Sequence[Rank], name: str) -> bool:
    return any(rank.get(name) for rank in ranks)


def _time_of(name: str) -> Callable[[Rank], str]:
    return lambda rank: format_seconds(rank[name])


def _share_of(name: str) -> Callable[[Rank], str]:
    return lambda rank: f"{rank[name]:.0%}"


def _count_of(name: str) -> Callable[[Rank], str]:
    return lambda rank: format_count(rank[name]) if name in rank else ""


def _whom(rank: int | None) -> str:
    return "" if rank is None else str(rank)


def _number(value: float) -> str:
    return f"{value:.3g}" if abs(value) < 1000 else format_count(value)


def format_seconds(seconds: float) -> str:
    """Returns three digits and a unit from ms to days, e.g. "12.3 ms", "41 s", "27.8 h"."""
    size = abs(seconds)
    if size < 5e-7:
        return "0 s"
    for unit, name, most in reversed(_UNITS):
        if size < most * unit * 0.9995 or name == "d":
            value = seconds / unit
            return f"{value:.3g} {name}" if abs(value) < 999.5 else f"{value:.0f} {name}"
    raise AssertionError("unreachable")


def format_count(count: float) -> str:
    """Returns a whole number; with three digits and a letter if it is long, e.g. "12.3M"."""
    if abs(count) < _WHOLE_BELOW:
        return f"{count:.0f}"
    for letter in "MGTPE":
        count /= 1e6 if letter == "M" else 1e3
        if abs(count) < 999.5:
            break
    return f"{count:.3g}{letter}"


def _shortened(text: str, most: int) -> str:
    """Returns a text of at most `most` letters; of a long one the two ends."""
    if len(text) <= most:
        return text
    tail = most // 2
    return f"{text[: most - tail - 1]}…{text[-tail:]}"


def terminal() -> Console:
    """Returns what monitors print to."""
    # Under a launcher the terminal is not the user's, and colors would be mixed with rank tags.
    launched = any(name in os.environ for name in ("OMPI_COMM_WORLD_RANK", "HOROVOD_RANK"))
    return Console(force_terminal=False if launched else None)


def print_table(straggler_table: StragglerTable) -> None:
    """Prints the table and the verdict."""
    console = terminal()
    seconds = straggler_table.total_seconds
    title = f"{straggler_table.steps} steps in {format_seconds(seconds)}"
    ranks = [dataclasses.asdict(report) for report in straggler_table.reports()]
    console.print(RankTable(ranks, title, seconds))
    console.print(Text(verdict_of(straggler_table)), soft_wrap=True)

"""What every bench reports: claims, rows and the environment, as a table, JSON and a verdict."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from pathlib import Path
from typing import Any, Literal

from rich.console import Console
from rich.table import Table
from rich.text import Text

from trepak.scripts.entrance import console as plain_console
from trepak.scripts.entrance import table_of
from trepak.scripts.idle_watch import LEAST_IDLE

_MOST_COLUMNS = 10  # of a table for people


@dataclass(frozen=True)
class Options:
    """How a bench is to be run.

    Attributes:
        np: number of processes.
        quick: measure little, in about a minute on 2 cores; nothing is judged.
        kept: a folder with trainings that are not measured again, where a bench takes hours.
        tune: search the baselines' best settings instead, where a bench can.
        lab: measure instead what takes too long for the usual run, in a lab, where a bench can.
    """

    np: int = 2
    quick: bool = False
    kept: Path | None = None
    tune: bool = False
    lab: bool = False


@dataclass(frozen=True)
class Claim:
    """One figure that a bench stands for.

    Attributes:
        value: what was measured.
        unit: of the value; "x" for a ratio.
        target: what the value must reach; None: it is reported, whatever it is.
        better: whether a "higher" or a "lower" value is better.
        paper: the value that the system's paper reports; None if there is no such figure.
        emulated: whether something that the figure depends on was emulated (a network, a GPU).
    """

    value: float
    unit: str
    target: float | None
    better: Literal["higher", "lower"]
    paper: float | None = None
    emulated: bool = False

    @property
    def met(self) -> bool:
        """Whether the value reaches the target; a value that is not a number never does."""
        if self.target is None:
            return True
        higher = self.better == "higher"
        return self.value >= self.target if higher else self.value <= self.target


class Claims(dict[str, Claim]):
    """The claims of a bench, by ID."""

    def add(
        self,
        name: str,
        value: float | None,
        target: float | None,
        better: Literal["higher", "lower"] = "higher",
        unit: str = "x",
        paper: float | None = None,
        emulated: bool = True,
    ) -> None:
        """Adds one, by default of what is emulated; none where there is no value. See `Claim`."""
        if value is not None:
            self[name] = Claim(value, unit, target, better, paper, emulated)


@dataclass(frozen=True)
class Report:
    """The outcome of one run of a bench.

    Attributes:
        bench: its name.
        claims: by ID, e.g. "bsp.step_time_vs_raw_horovod".
        rows: all measurements, JSON-able; "kind" says which table a row belongs to, and rows of one
            kind stand together and have the same keys.
        environment: where and how it was measured; see `Surroundings`.
        unprinted: kinds of rows that are for the JSON alone.
        idle_share: share of the CPU that was idle while emulated things were measured; None where
            nothing was emulated.
    """

    bench: str
    claims: Mapping[str, Claim]
    rows: Sequence[Mapping[str, Any]]
    environment: Mapping[str, Any] = field(default_factory=dict)
    unprinted: Sequence[str] = ()
    idle_share: float | None = None

    @property
    def believable(self) -> bool:
        """Whether the CPU had enough time for all processes not to slow what is emulated."""
        emulated = any(claim.emulated for claim in self.claims.values())
        return not emulated or (self.idle_share is not None and self.idle_share >= LEAST_IDLE)

    def missed(self) -> list[str]:
        """Returns the IDs of the claims that miss their targets."""
        return [name for name, claim in self.claims.items() if not claim.met]

    def to_json(self) -> str:
        """Returns the report in the format that all benches share."""
        content = dataclasses.asdict(self)
        del content["unprinted"]
        idle_share = content.pop("idle_share")
        if idle_share is not None:
            content["environment"]["cpu_idle_share_while_emulated"] = idle_share
        return json.dumps(content, indent=2, allow_nan=False) + "\n"


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:.4g}" if abs(value) < 10_000 else f"{value:,.0f}"
    if isinstance(value, int):
        return f"{value:,}"
    return "" if value is None else str(value)


def print_report(report: Report, console: Console, judged: bool) -> None:
    """Prints rows and claims as tables.

    Args:
        report: what to print.
        console: where to.
        judged: whether to say which claims meet their targets.
    """
    for kind, rows in groupby(report.rows, key=lambda row: row["kind"]):
        if kind not in report.unprinted:
            console.print(_rows_table(str(kind), list(rows)))
    table = table_of("claims")
    table.add_column("claim", overflow="fold")
    has_paper = any(claim.paper is not None for claim in report.claims.values())
    columns = ["value", "target", *["paper"] * has_paper, *["verdict"] * judged]
    for header in columns:
        table.add_column(header, justify="right", no_wrap=True)
    for name, claim in report.claims.items():
        verdict = Text("met", "green") if claim.met else Text("missed", "bold red")
        cells: dict[str, str | Text] = {
            "value": f"{_text(claim.value)} {claim.unit}",
            "target": _target(claim),
            "paper": _text(claim.paper),
            "verdict": "reported" if claim.target is None else verdict,
        }
        name += " (emulated)" if claim.emulated else ""
        table.add_row(name, *(cells[column] for column in columns))
    console.print(table)
    facts = report.environment
    if facts:
        console.print(
            f"{facts['cores']} cores, {facts['cpu']}; load average {facts['load_average_before']} "
            f"before and {facts['load_average_after']} after; {facts['cpu_idle_share']:.0%} of the "
            f"CPU idle; commit {facts['commit']}",
            highlight=False,
        )
        if facts["load_average_before"] > facts["cores"] / 2:
            console.print("Other programs were busy when it began: the figures are disturbed.")


def _target(claim: Claim) -> str:
    if claim.target is None:
        return ""
    return f"{'at least' if claim.better == 'higher' else 'at most'} {_text(claim.target)}"


def _rows_table(title: str, rows: Sequence[Mapping[str, Any]]) -> Table:
    table = table_of(title)
    columns = [key for key in rows[0] if key != "kind"]
    if len(columns) > _MOST_COLUMNS:  # would be too narrow: a column for each row instead
        table.add_column("")
        for row in rows:
            table.add_column(_text(row[columns[0]]), justify="right", overflow="fold")
        for column in columns[1:]:
            table.add_row(column.replace("_", " "), *(_text(row[column]) for row in rows))
        return table
    for column in columns:
        justify: Literal["left", "right"] = "left" if isinstance(rows[0][column], str) else "right"
        table.add_column(column.replace("_", " "), justify=justify, overflow="fold")
    for row in rows:
        table.add_row(*(_text(row[column]) for column in columns))
    return table


def conclude(
    report: Report, options: Options, json_path: Path | None, console: Console | None = None
) -> int:
    """Prints a report, writes its JSON and judges it.

    Args:
        report: the outcome.
        options: how it was run.
        json_path: the file to write; None writes none.
        console: where to print; standard output by default.

    Returns:
        The exit code: 1 if a full run's claim misses its target, or if something was emulated on a
        CPU too busy to believe it; else 0.
    """
    console = console or plain_console()
    print_report(report, console, judged=not options.quick)
    if json_path is not None:
        json_path.parent.mkdir(parents=True, exist_ok=True)
        json_path.write_text(report.to_json())
        console.print(f"JSON: {json_path}", soft_wrap=True)
    if options.quick:
        console.print("A quick run measures too little to judge: no claim was checked.")
        return 0
    if not report.believable:
        console.print(
            f"REFUSED: the CPU was {report.idle_share or 0:.0%} idle while accelerators or "
            f"networks were emulated; under {LEAST_IDLE:.0%} it is the CPU that was measured. Use "
            "fewer processes or smaller models.",
            style="bold red",
            soft_wrap=True,
        )
    missed = report.missed()
    for name in missed:
        claim = report.claims[name]
        console.print(
            f"MISSED: {name} is {_text(claim.value)} {claim.unit}; it must be {_target(claim)}.",
            style="bold red",
            soft_wrap=True,
        )
    return 1 if missed or not report.believable else 0

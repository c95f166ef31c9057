"""Where a StragglerMonitor's findings go: a table, `trepak top`, TensorBoard, Prometheus."""

from __future__ import annotations

import dataclasses
import json
import os
import stat
import sys
import tempfile
import time
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from rich.console import Console
from rich.table import Table

if TYPE_CHECKING:  # `trepak top` uses this module without TensorFlow
    from trepak.horovod_ext.stragglers import StragglerTable

# The figures of a rank, by the name under which they are exported, and what they mean.
FIGURES = {
    "compute_seconds": "Time in which the rank computed.",
    "waited_seconds": "Time in which the rank waited for others.",
    "delayed_seconds": "Time that each other rank, on average, waited for this one.",
    "last_share": "Share of the steps in which the rank was the last.",
    "rounds": "Rounds so far, where ranks go at their own pace.",
    "contributors": "Ranks that brought something to a round, on average.",
    "null_share": "Share of the rounds to which the rank brought nothing.",
    "staleness": "Rounds that others had ended since what the rank brought was begun, on average.",
    "dropped": "Gradients that were too stale for any round.",
    "exchanged_seconds": "Time in which the rank exchanged parameters with servers.",
    "prediction_error": "How far off the ends of steps were that ElasticBSP foresaw, in steps.",
    "not_finite": "Gradients that were left out, as they were not finite.",
    "taken_out": "How often a rank did not answer, and others went on without it; of rank 0.",
}
PREFIX = "trepak_"
LEAST_SHOWN = 0.05  # share of the time; a rank that others waited for longer is shown in red


class Sink(Protocol):
    """Takes the table each time it has grown."""

    def write(self, table: StragglerTable) -> None:
        """Publishes what the table holds now."""

    def close(self) -> None:
        """Ends it, at the end of the training."""


def open_sinks(log_dir: str | Path | None, port: int | None) -> list[Sink]:
    """Returns the sinks of rank 0: `trepak top` always, the others where asked for.

    Args:
        log_dir: of TensorBoard; None for none.
        port: at which Prometheus asks; None for none.

    Raises:
        OSError: the port is taken.
    """
    sinks: list[Sink] = [StatusFile()]
    if port is not None:
        sinks.append(PrometheusServer(port))
    if log_dir is not None:
        sinks.append(TensorBoardWriter(log_dir))
    return sinks


def table_of(ranks: Sequence[Mapping[str, Any]], title: str, seconds: float) -> Table:
    """Returns ranks as a table for a terminal, in red those that others waited for.

    Args:
        ranks: `RankReport`s as dictionaries; "waited_for" may be missing.
        title: what stands above.
        seconds: what all steps took.
    """
    if any(rank.get("exchanged_seconds") for rank in ranks):
        return _table_of_barriers(ranks, title)
    if any(rank.get("rounds") for rank in ranks):
        return _table_of_rounds(ranks, title)
    table = Table(title=title, title_justify="left")
    for header in ("rank", "host", "computed", "waited", "for rank", "made others wait", "last in"):
        table.add_column(header, justify="left" if header == "host" else "right")
    for rank in ranks:
        waited_for = rank.get("waited_for")
        table.add_row(
            str(rank["rank"]),
            rank["host"],
            f"{rank['compute_seconds']:.3g} s",
            f"{rank['waited_seconds']:.3g} s",
            "" if waited_for is None else str(waited_for),
            f"{rank['delayed_seconds']:.3g} s",
            f"{rank['last_share']:.0%}",
            style="bold red" if rank["delayed_seconds"] > LEAST_SHOWN * seconds else None,
        )
    return table


def _table_of_barriers(ranks: Sequence[Mapping[str, Any]], title: str) -> Table:
    table = Table(title=title, title_justify="left")
    headers = ("rank", "host", "steps", "computed", "waited", "exchanged", "barriers")
    left_out = _left_out(ranks)
    for header in (*headers, *left_out):
        table.add_column(header, justify="left" if header == "host" else "right")
    for rank in ranks:
        table.add_row(
            str(rank["rank"]),
            rank["host"],
            str(rank.get("steps", "")),
            f"{rank['compute_seconds']:.3g} s",
            f"{rank['waited_seconds']:.3g} s",
            f"{rank['exchanged_seconds']:.3g} s",
            f"{rank['rounds']:.0f}",
            *(f"{rank['not_finite']:.0f}" for _ in left_out),
        )
    return table


def _table_of_rounds(ranks: Sequence[Mapping[str, Any]], title: str) -> Table:
    table = Table(title=title, title_justify="left")
    headers = ("rank", "host", "steps", "computed", "waited", "rounds", "ranks in one", "null")
    left_out = _left_out(ranks)
    for header in (*headers, "staleness", "dropped", *left_out):
        table.add_column(header, justify="left" if header == "host" else "right")
    for rank in ranks:
        table.add_row(
            str(rank["rank"]),
            rank["host"],
            str(rank.get("steps", "")),
            f"{rank['compute_seconds']:.3g} s",
            f"{rank['waited_seconds']:.3g} s",
            f"{rank['rounds']:.0f}",
            f"{rank['contributors']:.3g}",
            f"{rank['null_share']:.0%}",
            f"{rank['staleness']:.2g}",
            f"{rank['dropped']:.0f}",
            *(f"{rank['not_finite']:.0f}" for _ in left_out),
        )
    return table


def _left_out(ranks: Sequence[Mapping[str, Any]]) -> list[str]:
    """Returns the header of gradients that were not finite, if there were any."""
    return ["not finite"] if any(rank.get("not_finite") for rank in ranks) else []


def print_table(straggler_table: StragglerTable) -> None:
    """Prints the table and the verdict."""
    # Under a launcher the terminal is not the user's, and colors would be mixed with rank tags.
    launched = any(name in os.environ for name in ("OMPI_COMM_WORLD_RANK", "HOROVOD_RANK"))
    console = Console(force_terminal=False if launched else None)
    seconds = straggler_table.total_seconds
    title = f"{straggler_table.steps} steps in {seconds:.3g} s"
    ranks = [dataclasses.asdict(report) for report in straggler_table.reports()]
    console.print(table_of(ranks, title, seconds))
    console.print(straggler_table.verdict(), highlight=False, soft_wrap=True)


def status_folder() -> Path:
    """Returns where the jobs of this user on this machine say how they are."""
    base = os.environ.get("XDG_RUNTIME_DIR") or tempfile.gettempdir()
    return Path(base) / f"trepak-{os.getuid()}"


class StatusFile:
    """A file that `trepak top` reads; it goes when the job ends.

    A job does not end because this file can't be written: a warning says so, once.
    """

    def __init__(self) -> None:
        """Makes the folder; the file comes with the first steps."""
        self._path: Path | None = None
        try:
            self._path = own_folder(status_folder()) / f"{os.getpid()}.json"
        except OSError as error:
            self._give_up(error)

    def write(self, table: StragglerTable) -> None:
        """Writes the file anew; a reader sees the old one or the new one."""
        if self._path is None:
            return
        status = {
            "pid": os.getpid(),
            "command": " ".join(sys.argv),
            "time": time.time(),
            "steps": table.steps,
            "seconds": table.total_seconds,
            "verdict": table.verdict(),
            "ranks": [dataclasses.asdict(report) for report in table.reports()],
        }
        new = self._path.with_suffix(".new")
        try:
            new.write_text(json.dumps(status))
            new.replace(self._path)
        except OSError as error:
            self._give_up(error)

    def _give_up(self, error: OSError) -> None:
        self._path = None
        warnings.warn(f"`trepak top` will not show this job: {error}", stacklevel=2)

    def close(self) -> None:
        """Removes the file."""
        if self._path is not None:
            self._path.unlink(missing_ok=True)


def own_folder(folder: Path) -> Path:
    """Makes a folder that only this user can write to, or finds it so.

    Raises:
        OSError: somebody else made it, or could write to it.
    """
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    found = folder.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid() or found.st_mode & 0o022:
        raise OSError(f"{folder} is not this user's own folder; remove it.")
    return folder


class PrometheusServer:
    """Answers Prometheus' requests."""

    def __init__(self, port: int) -> None:
        """Starts to listen.

        Raises:
            OSError: the port is taken.
        """
        from prometheus_client import CollectorRegistry, Gauge, start_http_server

        registry = CollectorRegistry()
        labels = ("rank", "host")
        self._gauges = {
            name: Gauge(PREFIX + name, meaning, labels, registry=registry)
            for name, meaning in FIGURES.items()
        }
        self._steps = Gauge(f"{PREFIX}steps", "Steps so far.", registry=registry)
        self._seconds = Gauge(f"{PREFIX}seconds", "Time of those steps.", registry=registry)
        try:
            self._server, self._thread = start_http_server(port, registry=registry)
        except OSError as error:
            raise OSError(
                error.errno,
                f"StragglerMonitor cannot serve metrics at port {port}: {error.strerror}. Choose "
                "another port.",
            ) from error

    def write(self, table: StragglerTable) -> None:
        """Sets the gauges."""
        self._steps.set(table.steps)
        self._seconds.set(table.total_seconds)
        for report in table.reports():
            for name, gauge in self._gauges.items():
                gauge.labels(str(report.rank), report.host).set(getattr(report, name))

    def close(self) -> None:
        """Stops to listen."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(5)


class TensorBoardWriter:
    """Writes a scalar for each rank and figure.

    `tf.summary.scalar` needs the package tensorboard, which only those who look need to have.
    """

    def __init__(self, log_dir: str | Path) -> None:
        """Opens an event file."""
        import tensorflow as tf

        self._tf = tf
        self._writer = tf.summary.create_file_writer(str(log_dir))
        self._metadata = tf.compat.v1.SummaryMetadata()
        self._metadata.plugin_data.plugin_name = "scalars"

    def write(self, table: StragglerTable) -> None:
        """Writes the figures at the step that the table has come to."""
        with self._writer.as_default(step=table.steps):
            for report in table.reports():
                self._write(f"rank_{report.rank}", dataclasses.asdict(report))
        self._writer.flush()

    def _write(self, rank: str, figures: Mapping[str, Any]) -> None:
        for name in FIGURES:
            value = self._tf.constant(figures[name], self._tf.float32)
            self._tf.summary.write(f"stragglers/{name}/{rank}", value, metadata=self._metadata)

    def close(self) -> None:
        """Closes the event file."""
        self._writer.close()

"""Where a StragglerMonitor's findings go: `trepak top`, TensorBoard, Prometheus."""

from __future__ import annotations

import dataclasses
import json
import os
import stat
import sys
import tempfile
import time
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from trepak.horovod_ext.straggler_verdict import verdict_of

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
LOCAL = "127.0.0.1"


class Sink(Protocol):
    """Takes the table each time it has grown."""

    def write(self, table: StragglerTable) -> None:
        """Publishes what the table holds now."""

    def close(self) -> None:
        """Ends it, at the end of the training."""


def open_sinks(log_dir: str | Path | None, port: int | None, address: str = LOCAL) -> list[Sink]:
    """Returns the sinks of rank 0: `trepak top` always, the others where asked for.

    Args:
        log_dir: of TensorBoard; None for none.
        port: at which Prometheus asks; None for none.
        address: of this machine, at which it asks: a name, an IPv4 or an IPv6 address.

    Raises:
        OSError: the port is taken, or the machine does not have the address.
    """
    sinks: list[Sink] = [StatusFile()]
    if port is not None:
        sinks.append(PrometheusServer(port, address))
    if log_dir is not None:
        sinks.append(TensorBoardWriter(log_dir))
    return sinks


def status_folder() -> Path:
    """Returns where the jobs of this user on this machine say how they are."""
    base = os.environ.get("XDG_RUNTIME_DIR") or tempfile.gettempdir()
    return Path(base) / f"trepak-{os.getuid()}"


class StatusFile:
    """A file that `trepak top` reads; it goes when the job ends.

    A job does not end because this file can't be written: a warning says so, once.
    """

    def __init__(self, part: str = "") -> None:
        """Makes the folder; the file comes with the first steps.

        Args:
            part: of the job that it tells of; each has a file of its own.
        """
        self._path: Path | None = None
        try:
            self._path = own_folder(status_folder()) / f"{os.getpid()}{part}.json"
        except OSError as error:
            self._give_up(error)

    def write(self, table: StragglerTable) -> None:
        """Publishes the table."""
        told = {"steps": table.steps, "seconds": table.total_seconds, "verdict": verdict_of(table)}
        self.publish(told | {"ranks": [dataclasses.asdict(report) for report in table.reports()]})

    def publish(self, told: Mapping[str, Any]) -> None:
        """Writes the file anew; a reader sees the old one or the new one."""
        if self._path is None:
            return
        status = {"pid": os.getpid(), "command": " ".join(sys.argv), "time": time.time(), **told}
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
    """Answers Prometheus' requests, whoever asks: hence at this machine's own address."""

    def __init__(self, port: int, address: str = LOCAL) -> None:
        """Starts to listen, at this address only.

        Raises:
            OSError: the port is taken, or the machine does not have the address.
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
            self._server, self._thread = start_http_server(port, address, registry=registry)
        except OSError as error:
            raise OSError(
                error.errno,
                f"StragglerMonitor cannot serve metrics at address {address!r}, port {port}: "
                f"{error.strerror}. Choose another port=, or an address= of this machine.",
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

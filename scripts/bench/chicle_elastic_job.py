"""Elastic jobs of `trepak bench chicle`: hosts come and go, and ranks note what happens when."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from trepak.scripts.bench.ranks import command_of
from trepak.scripts.interrupts import kill_group
from trepak.scripts.launcher import JobError, environment

WORKER = "chicle_elastic_worker"
CHICLE, PLAIN = "Chicle", "Horovod Elastic alone"
NETWORK = "Chicle, a network by local SGD"
_WAIT_SECONDS = 120.0  # for whatever comes next: ranks import TensorFlow meanwhile
_STOP_SECONDS = 20.0


@dataclass(frozen=True)
class Spec:
    """What the ranks of a job train.

    Attributes:
        way: `CHICLE`, `PLAIN` or `NETWORK`.
        folder: with x.npy and y.npy, where ranks write their notes.
        pause: the seconds that an iteration waits; not of a network.
        sample_seconds: that a sample takes, beside its real computation.
        c: of each sample's hinge loss.
        tol: the relative duality gap at which training ends.
        chunk_bytes: of a chunk.
        seed: of chunks' places and samples' order.
        batch: L, the samples of a network's step, divided by the number of ranks.
        steps: H, a network's steps between two averages.
        epochs: after which a network's training ends.
    """

    way: str
    folder: Path
    pause: float = 0.0
    sample_seconds: float = 0.0
    c: float = 1.0
    tol: float = 1e-12
    chunk_bytes: int = 1 << 20
    seed: int = 0
    batch: int = 0
    steps: int = 0
    epochs: int = 0


Note = Mapping[str, Any]


class ElasticJob:
    """A job that runs, the list of its hosts, and what its ranks have noted; a context."""

    def __init__(self, spec: Spec, launcher: Sequence[str], hosts: Sequence[str]) -> None:
        """Starts it.

        Args:
            spec: what is trained.
            launcher: arguments of `trepak`, up to the command; the hosts stand in the folder's
                file "hosts".
            hosts: with which it begins.
        """
        self._folder = spec.folder
        self.use(hosts)
        self._spec = command_of(WORKER, spec)
        command, _ = self._spec.__enter__()
        with (self._folder / "printed").open("w") as printed:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "trepak.scripts.cli", *launcher, "--", *command],
                env=environment(),
                stdin=subprocess.DEVNULL,
                stdout=printed,
                stderr=subprocess.STDOUT,
                text=True,
                start_new_session=True,
            )

    def __enter__(self) -> ElasticJob:
        """Returns this; its end ends the job."""
        return self

    def __exit__(self, *_: object) -> None:
        """Ends the job, if it has not ended."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            try:
                self.process.wait(_STOP_SECONDS)
            except subprocess.TimeoutExpired:
                kill_group(self.process, signal.SIGKILL)
                self.process.wait()
        self._spec.__exit__(None, None, None)

    def use(self, hosts: Sequence[str]) -> float:
        """Has the job have these hosts from now on; returns the present second."""
        new = self._folder / "hosts.new"
        new.write_text("".join(f"{host}:1\n" for host in hosts))
        new.replace(self._folder / "hosts")
        return time.time()

    def notes(self) -> list[Note]:
        """Returns what ranks have noted, in the order of time."""
        file = self._folder / "notes"
        lines = file.read_text().splitlines() if file.exists() else []
        return sorted(map(json.loads, lines), key=lambda note: float(note["begin"]))

    def wait(self, until: Callable[[list[Note]], bool], what: str) -> list[Note]:
        """Returns the notes once they are as awaited.

        Raises:
            JobError: the job has ended before, or it takes too long.
        """
        deadline = time.monotonic() + _WAIT_SECONDS
        while not until(notes := self.notes()):
            has_ended = self.process.poll() is not None
            if has_ended or time.monotonic() > deadline:
                printed = (self._folder / "printed").read_text()
                raise JobError(f"the job did not come to {what}. It printed:\n{printed[-3000:]}")
            time.sleep(0.1)
        return notes

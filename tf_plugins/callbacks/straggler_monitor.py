"""StragglerMonitor: which rank made the others wait, while `fit` runs and at its end."""

from __future__ import annotations

import atexit
import dataclasses
import socket
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from trepak.horovod_ext import basics, exchange, step_probe
from trepak.horovod_ext.step_probe import StepTimes, take_step_times
from trepak.horovod_ext.stragglers import RoundsOfRank, StragglerTable
from trepak.tf_plugins.callbacks import straggler_sinks, straggler_tables
from trepak.tf_plugins.model.distributed_models import asynchronous_steps, flush
from trepak.tf_plugins.model.model_hooks import flush_hooks, goes_ahead


class StragglerMonitor(keras.callbacks.Callback):
    """Shows, per rank, how long it computed, how long it waited, and for whom.

    On all ranks, or on none. Every `every` batches the ranks exchange their steps' times, two
    numbers per step; rank 0 tells of them. Where ranks go at their own pace (`sync=trepak.RNA()`)
    they do so at the end of each epoch, and what each brought to the rounds is shown. With
    `sync=trepak.LocalSGD(H=…)` what is shown as a step is H of them and the average.

    Attributes:
        table: the `StragglerTable` of all steps so far, the same on every rank.
    """

    def __init__(
        self,
        every: int = 50,
        log_dir: str | Path | None = None,
        port: int | None = None,
        verbose: int = 1,
        address: str | None = None,
    ) -> None:
        """Makes the callback.

        Args:
            every: batches between two exchanges; one more is made at the end of each epoch.
            log_dir: writes scalars for TensorBoard there, on rank 0.
            port: serves metrics for Prometheus there, on rank 0; 1 to 65535.
            verbose: 1 prints a table at the end of the training, on rank 0; 0 prints nothing.
            address: at which rank 0 serves them: a name or an IP address of its machine. By default
                127.0.0.1, which only that machine reaches; "0.0.0.0" (IPv4) and "::" (both) are
                all of its addresses. Whoever reaches the port can read the metrics.

        Raises:
            ValueError: `every` or `port` is out of bounds, or there is an `address` and no `port`.
        """
        super().__init__()
        if every < 1:
            raise ValueError(f"every must be at least 1, got {every}.")
        if port is not None and not 1 <= port <= 65535:
            raise ValueError(f"port must be from 1 to 65535, got {port}.")
        if address is not None and (port is None or not address):
            raise ValueError(f"address={address!r} needs a port= and a name or an IP address.")
        self._every = every
        self._log_dir = log_dir
        self._port = port
        self._address = straggler_sinks.LOCAL if address is None else address
        self._verbose = verbose
        self._batches = 0  # of this epoch, when the ranks last exchanged
        self._began = 0.0
        self._sinks: list[straggler_sinks.Sink] = []
        self._at_own_pace = False
        self._alone = 0.0  # seconds of steps since ranks last ended one together
        self._before: RoundsOfRank | None = None
        self.table = StragglerTable([])

    def on_train_begin(self, logs: Any = None) -> None:
        """Begins to look; steps that are traced already are traced again, with marks.

        Raises:
            RuntimeError: rank 0 cannot write or serve what was asked for; on all ranks.
        """
        self._close_sinks()  # those of a fit that an exception ended
        step_probe.mark_model(self.model)
        self._batches, self._alone = 0, 0.0
        self._at_own_pace = bool(asynchronous_steps(self.model))
        self._before = asynchronous_steps(self.model)[0].rounds() if self._at_own_pace else None
        self.table = StragglerTable(exchange.gather(socket.gethostname(), "hosts"))
        self._open_sinks()
        take_step_times()  # those of an earlier fit
        self._began = time.monotonic()

    def _open_sinks(self) -> None:
        problem = ""
        if basics.rank() == 0:
            try:
                self._sinks = straggler_sinks.open_sinks(self._log_dir, self._port, self._address)
            except (OSError, tf.errors.OpError) as error:
                problem = str(error)
        for told in exchange.gather(problem, "sinks"):
            if told:
                raise RuntimeError(f"rank 0: {told}")
        atexit.register(self._close_sinks)

    def _close_sinks(self) -> None:
        for sink in self._sinks:
            sink.close()
        self._sinks = []

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        """Exchanges what came since the last time, now and then; a collective call."""
        # With steps_per_execution, `batch` is the last of several.
        if batch + 1 - self._batches >= self._every and not self._at_own_pace:
            self._batches = batch + 1
            self._exchange()

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        """Exchanges the rest of the epoch; a collective call."""
        self._batches = 0
        if self._at_own_pace:
            flush(self.model)  # ranks that still train may need this one's gradients
        self._exchange()

    def on_train_end(self, logs: Any = None) -> None:
        """Prints the table."""
        self._close_sinks()
        atexit.unregister(self._close_sinks)
        if basics.rank() == 0 and self._verbose:
            straggler_tables.print_table(self.table)

    def _exchange(self) -> None:
        # What came before the first step was start-up, or another fit: it has no begin here.
        found = [
            one for one in take_step_times() if one.begin >= self._began and one.ready > one.begin
        ]
        if self._at_own_pace:
            self._exchange_rounds([_durations(one) for one in found])
            return
        if goes_ahead(self.model):
            flush_hooks(self.model)  # a rank that is behind could else wait for one that is here
        everyone = exchange.gather(self._between_meetings(found), "step times")
        steps = min(len(theirs) for theirs in everyone)
        if steps:
            # The latest of each: a rank may have taken steps that others do not know.
            times = np.array([theirs[-steps:] for theirs in everyone])
            self.table.add(times[:, :, 0], times[:, :, 1])
        for sink in self._sinks:
            sink.write(self.table)

    def _between_meetings(self, steps: Sequence[StepTimes]) -> list[tuple[float, float]]:
        """Returns the times of the steps that all ranks end together, where alone they wait.

        Those that a rank ends by itself (`sync=LocalSGD`) are computing of the next such step.
        """
        met = []
        for one in steps:
            if one.at_own_pace:
                self._alone += one.done - one.begin
            else:
                compute, synchronize = _durations(one)
                met.append((self._alone + compute, synchronize))
                self._alone = 0.0
        return met

    def _exchange_rounds(self, mine: list[tuple[float, float]]) -> None:
        assert self._before is not None
        rounds = dataclasses.astuple(asynchronous_steps(self.model)[0].rounds().since(self._before))
        sums = [len(mine), *np.sum(np.reshape(mine, (-1, 2)), axis=0).tolist()]
        everyone = exchange.gather([sums, rounds], "step times and rounds")
        steps, compute, waited = zip(*(theirs for theirs, _ in everyone), strict=True)
        self.table.add_at_own_pace(
            steps, compute, waited, [RoundsOfRank(*theirs) for _, theirs in everyone]
        )
        for sink in self._sinks:
            sink.write(self.table)


def _durations(one: StepTimes) -> tuple[float, float]:
    return one.ready - one.begin, one.done - one.ready

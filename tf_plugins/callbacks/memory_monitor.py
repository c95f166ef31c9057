"""MemoryMonitor: what Dymem does with memory, while `fit` runs and at its end."""

from __future__ import annotations

import atexit
import dataclasses
import os
import time
from pathlib import Path
from typing import Any

import keras
import tensorflow as tf
from rich.text import Text

from trepak.horovod_ext import basics
from trepak.ops.loader import call
from trepak.tf_plugins.callbacks import memory_drawings, straggler_tables
from trepak.tf_plugins.callbacks.memory_figures import (
    MemoryFigures,
    Statistics,
    Tally,
    format_bytes,
)
from trepak.tf_plugins.callbacks.straggler_sinks import StatusFile

_NO_DYMEM = (
    "this process has no Dymem. Make a trepak.Dymem(pool=, beyond=) the first thing that the "
    "script does after its imports."
)
_TELLS_SECONDS = 1.0  # as often as `trepak top` looks
_CURVES = 2  # batches of each epoch whose curve is taken; a function's first one is traced, too


class MemoryMonitor(keras.callbacks.Callback):
    """Shows what `trepak.Dymem` does in `fit`: memory over a step, swaps, fragmentation.

    Each epoch is a line, and the end of the training a summary with the memory curve of a step:
    live bytes, and the gaps between them (thesis, section 4.3.4). It proves that
    swapping is on: as many tensors came back as left. If none left, it says why.

    Peaks of `Dymem.statistics()` begin anew with each epoch and each step that is drawn.

    Attributes:
        figures: the `MemoryFigures` of the training so far; None without a Dymem.
        curve: of the last step that was looked at (with `steps_per_execution`, of that many): each
            point's seconds, live bytes and occupied bytes, the most until the next point.
        why_nothing: why no tensor was swapped; empty if some were.
    """

    def __init__(self, picture: str | os.PathLike[str] | None = None, verbose: int = 1) -> None:
        """Makes the callback.

        Args:
            picture: the file to which the memory curve is drawn at the end of the training, such as
                "memory.png"; None for none. Rank 0 writes it.
            verbose: 1 prints lines and summary on rank 0; 0 prints nothing.
        """
        super().__init__()
        self._picture = None if picture is None else Path(picture)
        self._verbose = verbose
        self._status: StatusFile | None = None
        self._calls = self._steps = self._steps_of_epoch = 0
        self._told = 0.0  # when `trepak top` was told last
        self._training: Tally | None = None
        self._epoch: Tally | None = None
        self.figures: MemoryFigures | None = None
        self.curve: list[tuple[float, float, float]] = []
        self.why_nothing = ""

    def on_train_begin(self, logs: Any = None) -> None:
        """Begins to look."""
        self._close()  # that of a fit that an exception ended
        self._steps, self._told, self.figures, self.curve = 0, time.monotonic(), None, []
        begin = self._look()
        self._training = self._epoch = None if begin is None else Tally(begin)
        if begin is not None:
            self._status = StatusFile(".memory")
            atexit.register(self._close)

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        """Begins an epoch's figures."""
        self._calls = self._steps_of_epoch = 0
        begin = self._look()
        if begin is not None:
            self._epoch = Tally(begin)

    def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
        """Begins a curve, in the first batches of an epoch."""
        if self._calls < _CURVES:
            self._look()

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        """Takes the curve."""
        # With steps_per_execution, `batch` is the last of several.
        self._steps_of_epoch = batch + 1
        if self._calls < _CURVES:
            now = self._look(curve=True)
            self.curve = [] if now is None else [tuple(point) for point in now["curve"]]
        self._calls += 1
        if time.monotonic() > self._told + _TELLS_SECONDS:
            self._tell()

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        """Prints the epoch's line, and tells `trepak top`."""
        self._tell()
        self._steps += self._steps_of_epoch
        if self._epoch is not None and self._training is not None:
            self.why_nothing = self._why_nothing(self._training)
            self._print(f"epoch {epoch + 1}: {self._epoch.figures(self._steps_of_epoch).line()}")

    def _tell(self) -> None:
        """Tells `trepak top` how the training is."""
        self._told = time.monotonic()
        self._look()
        if self._training is not None and self._status is not None:
            self.figures = self._training.figures(self._steps + self._steps_of_epoch)
            told = {"steps": self.figures.steps, "rank": _rank()}
            self._status.publish(told | {"memory": dataclasses.asdict(self.figures)})

    def on_train_end(self, logs: Any = None) -> None:
        """Prints the summary and draws the curve.

        Raises:
            OSError: the picture can't be written.
            ValueError: its file's name has no ending that says which format it has.
        """
        self._close()
        if self._training is None or self.figures is None:
            self.why_nothing = _NO_DYMEM if self._training is None else "no epoch was trained."
            self._print(f"Nothing was swapped: {self.why_nothing}")
            return
        self._print("\n".join(self._summary(self._training, self.figures)))
        if self._picture is not None and self.curve and not _rank():
            self._picture.parent.mkdir(parents=True, exist_ok=True)
            memory_drawings.draw_curve(self.curve, self.figures.limit_bytes, self._picture)

    def _summary(self, training: Tally, figures: MemoryFigures) -> list[str]:
        lines = [f"Dymem, {figures.steps} steps: {figures.line()}", *training.proof()]
        lines.append(f"beyond the pool: at most {format_bytes(figures.beyond_peak_bytes)} at once")
        if self.why_nothing:
            lines.append(f"Nothing was swapped: {self.why_nothing}")
        if self.curve:
            lines.append(memory_drawings.text_curve(self.curve))
        return lines

    def _why_nothing(self, training: Tally) -> str:
        why = training.why_nothing()
        if why and self.model.jit_compile:
            return "jit_compile=True has XLA compile the step, into which Dymem can't see."
        if why and self.model.run_eagerly:
            return "run_eagerly=True makes no graph, and Dymem works on graphs."
        return why

    def _look(self, curve: bool = False) -> Statistics | None:
        """Returns Dymem's statistics, of which peaks and the curve begin anew; None without one."""
        try:
            now: Statistics = call("dymem_statistics", curve=curve)
        except tf.errors.NotFoundError:
            return None
        call("dymem_reset_peaks")
        for tally in {self._epoch, self._training}:
            if tally is not None:
                tally.add(now)
        return now

    def _print(self, text: str) -> None:
        if text and self._verbose and not _rank():
            straggler_tables.terminal().print(Text(text), soft_wrap=True)

    def _close(self) -> None:
        if self._status is not None:
            self._status.close()
            atexit.unregister(self._close)
            self._status = None


def _rank() -> int:
    return int(basics.rank()) if basics.is_initialized() else 0

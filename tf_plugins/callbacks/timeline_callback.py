"""TimelineCallback: writes what each rank does during `fit`, and when."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import keras

from trepak.horovod_ext import basics, step_probe, timeline
from trepak.ops.timeline import add_span, close_timeline, parse_steps


class TimelineCallback(keras.callbacks.Callback):
    """Writes one Chrome trace per rank; `trepak trace merge` makes one picture of them.

    TREPAK_TIMELINE=FOLDER writes the same without a change of the script, but for the spans of
    epochs and validation, which only a callback sees.
    """

    def __init__(self, folder: str | Path, steps: str = ":") -> None:
        """Makes the callback.

        Args:
            folder: where the files go, `rank-0.json` and so on.
            steps: which steps are kept, e.g. "10:20" for steps 10 to 19; all by default.

        Raises:
            ValueError: `steps` is no window.
        """
        super().__init__()
        parse_steps(steps)
        self._folder = folder
        self._steps = steps
        self._began: dict[str, float] = {}

    def on_train_begin(self, logs: Any = None) -> None:
        """Begins the file; steps that are traced already are traced again, with marks."""
        timeline.open_for(basics.rank(), basics.size(), self._folder, self._steps)
        step_probe.mark_model(self.model)

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        """Notes when an epoch begins."""
        self._began["epoch"] = time.monotonic()

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        """Adds the epoch."""
        add_span(f"epoch {epoch}", self._began["epoch"], time.monotonic())

    def on_test_begin(self, logs: Any = None) -> None:
        """Notes when a validation begins."""
        self._began["test"] = time.monotonic()

    def on_test_end(self, logs: Any = None) -> None:
        """Adds the validation."""
        add_span("validation", self._began["test"], time.monotonic())

    def on_train_end(self, logs: Any = None) -> None:
        """Ends the file."""
        close_timeline()

"""When a training reaches what, and how its ranks spend the time."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from typing import Any

import trepak.keras as hvd  # before Keras: it keeps TensorFlow's start-up noise off the terminal

# isort: split
import keras

from trepak.horovod_ext.step_probe import StepTimes
from trepak.scripts.idle_watch import IdleWatch

_RARER = 0.04  # of the time so far, until weights are kept again: curves rise ever more slowly


class Clock(keras.callbacks.Callback):
    """Times the training alone: from the begin of an epoch until its rounds are applied."""

    def __init__(self) -> None:
        """Makes it."""
        super().__init__()
        self.seconds = 0.0
        self.spans: list[tuple[float, float]] = []
        self._idle = self._stolen = 0.0
        self.training_accuracies: list[float] = []  # of the epochs
        self.losses: list[tuple[float, float, float]] = []  # seconds, loss, accuracy

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        """Goes on."""
        hvd.barrier()
        self._began = time.perf_counter()
        self._cpu = IdleWatch()

    def on_test_begin(self, logs: Any = None) -> None:
        """Stops: the callbacks before this one have applied what waited."""
        self.spans.append((self._began, time.perf_counter()))
        seconds = self.spans[-1][1] - self._began
        self.seconds += seconds
        self._idle += seconds * self._cpu.share()
        self._stolen += seconds * self._cpu.stolen()

    def shares(self) -> dict[str, float]:
        """Returns which shares of the CPU were idle and stolen meanwhile."""
        return {"idle": self._idle / self.seconds, "stolen": self._stolen / self.seconds}

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        """Notes the held-out loss."""
        self.losses.append((self.seconds, logs["val_loss"], logs["val_accuracy"]))
        self.training_accuracies.append(logs["accuracy"])


class Snapshots(Clock):
    """Keeps rank 0's weights from time to time, and evaluates them when the training is over.

    A rank's weights are the job's as of its latest step, whatever the method, so that nobody need
    wait for the others to evaluate them.
    """

    def __init__(self, every: float) -> None:
        """Makes it; `every`: seconds, as long as these are more than `_RARER` of a training's."""
        super().__init__()
        self._every = every
        self._kept: list[tuple[float, Any]] = []

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        """Keeps the weights, if it is time."""
        seconds = self.seconds + time.perf_counter() - self._began
        latest = self._kept[-1][0] if self._kept else 0.0
        if hvd.rank() == 0 and seconds >= latest + max(self._every, _RARER * latest):
            self._kept.append((seconds, self.model.get_weights()))

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        """Stops: the callbacks before this one have applied what waited."""
        self.on_test_begin()
        self.training_accuracies.append(logs["accuracy"])
        if hvd.rank() == 0:
            self._kept.append((self.seconds, self.model.get_weights()))

    def evaluate(self, x: Any, y: Any) -> None:
        """Notes the losses of what was kept, held out data being x and y; on rank 0."""
        for seconds, weights in self._kept:
            self.model.set_weights(weights)
            found = self.model.evaluate(x, y, batch_size=len(x), verbose=0, return_dict=True)
            self.losses.append((seconds, found["loss"], found["accuracy"]))
        self._kept = []


class StopAtTarget(keras.callbacks.Callback):
    """Ends the training at a held-out loss or accuracy, which are the same on all ranks."""

    def __init__(self, loss: float | None, accuracy: float | None = None) -> None:
        """Makes it; None: not at any."""
        super().__init__()
        self._loss = -math.inf if loss is None else loss
        self._accuracy = math.inf if accuracy is None else accuracy

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        """Ends it."""
        if logs["val_loss"] <= self._loss or logs["val_accuracy"] >= self._accuracy:
            self.model.stop_training = True


def computed(
    times: Sequence[StepTimes], drawn: Sequence[float], spans: Sequence[tuple[float, float]]
) -> dict[str, float]:
    """Returns what a rank did in epochs, in seconds.

    Args:
        times: of its steps.
        drawn: seconds that each was to take.
        spans: begin and end of each epoch, on the same clock.

    Returns:
        `computed_s`: from a step's end until the next one's gradients were there, with the batch
        and the rounds that were applied before them; an epoch's first step counts what it was to
        take. `began_s`: the rest of first steps, until then. `drained_s`: from the last step of an
        epoch until all ranks had applied its rounds.
    """
    found = {"computed_s": 0.0, "began_s": 0.0, "drained_s": 0.0}
    for begin, end in spans:
        steps = [(o, s) for o, s in zip(times, drawn, strict=True) if begin < o.ready <= end]
        if not steps:
            continue
        (first, seconds), *others = steps
        took = first.ready - begin
        found["computed_s"] += min(took, seconds) + sum(o.ready - o.begin for o, _ in others)
        found["began_s"] += max(0.0, took - seconds)
        found["drained_s"] += end - steps[-1][0].done
    return found

"""PriorityThresholdTuning: finds Geryon's priority threshold while training goes on."""

from __future__ import annotations

import time
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import keras
import numpy as np

from trepak.horovod_ext import basics, exchange
from trepak.tf_plugins.model.distributed_models import asynchronous_steps
from trepak.tf_plugins.transport.geryon import Geryon

_SETTLING = 1  # batches after a change that do not count: older gradients are still on their way
_DEGREE = 2  # of the polynomial that is fitted
_POINTS = 201


class Trial(NamedTuple):
    """What one threshold came to.

    Attributes:
        threshold: an urgency.
        seconds: of a batch, the mean over the ranks of each one's median.
    """

    threshold: float
    seconds: float


class PriorityThresholdTuning(keras.callbacks.Callback):
    """Tries thresholds in the first batches, and keeps the best; nothing starts again (III.C).

    The time of a batch is fitted over the threshold with a parabola; the minimum of the fit is what
    all ranks keep. On all ranks, or on none.

    Attributes:
        trials: what was tried, when all is measured; the same on all ranks.
        chosen: the threshold that was kept; None until then.
    """

    def __init__(
        self,
        thresholds: Sequence[float] = (0.0, 0.2, 0.4, 0.6, 0.8),
        batches: int = 5,
        figure: str | Path | None = None,
        verbose: int = 1,
    ) -> None:
        """Makes the callback.

        Args:
            thresholds: what to try, at least 3 different urgencies from 0 to 1.
            batches: measured for each threshold; one more passes before.
            figure: draws the curve there, as a PNG, on rank 0.
            verbose: 1 prints the choice, on rank 0; 0 prints nothing.

        Raises:
            ValueError: too few thresholds to fit, impossible ones, or no batch.
        """
        super().__init__()
        if len(set(thresholds)) <= _DEGREE or not all(0 <= t <= 1 for t in thresholds):
            raise ValueError(
                f"thresholds must be at least {_DEGREE + 1} different urgencies from 0 to 1, got "
                f"{list(thresholds)}."
            )
        if batches < 1:
            raise ValueError(f"batches must be at least 1, got {batches}.")
        self._thresholds = [float(threshold) for threshold in thresholds]
        self._batches = batches
        self._figure = figure
        self._verbose = verbose
        self._times: list[list[float]] = [[] for _ in thresholds]
        self._seen = 0
        self._last = 0.0
        self.trials: list[Trial] = []
        self.chosen: float | None = None

    def on_train_begin(self, logs: Any = None) -> None:
        """Sets the first threshold.

        Raises:
            ValueError: the optimizer's transport is no Geryon with two priorities, the job is
                elastic, so that ranks that join it could not take part in the search, or ranks go
                at their own pace, and don't come to a batch together.
        """
        if basics.is_elastic():
            raise ValueError(
                "PriorityThresholdTuning does not work in elastic jobs: give Geryon the threshold "
                "that another job has found."
            )
        if asynchronous_steps(self.model):
            raise ValueError(
                "PriorityThresholdTuning is for sync=BSP(), where ranks take their batches "
                "together: leave it out, and give Geryon a threshold."
            )
        if self.chosen is None:
            self._geryon().set_threshold(self._thresholds[self._seen // self._each()])

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        """Begins to take the time anew: what lies between epochs is no batch."""
        self._last = time.perf_counter()

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        """Takes the time of the batch; goes on to the next threshold, or ends the search."""
        now = time.perf_counter()
        if self.chosen is not None:
            return
        number, place = divmod(self._seen, self._each())
        if place >= _SETTLING:
            self._times[number].append(now - self._last)
        self._seen += 1
        if self._seen == self._each() * len(self._thresholds):
            self._choose()
        elif self._seen % self._each() == 0:
            self._geryon().set_threshold(self._thresholds[self._seen // self._each()])
        self._last = time.perf_counter()

    def on_train_end(self, logs: Any = None) -> None:
        """Says so if the training was too short."""
        if self.chosen is None:
            needed = self._each() * len(self._thresholds)
            warnings.warn(
                f"PriorityThresholdTuning has seen {self._seen} of {needed} batches: the threshold "
                f"stays {self._geryon().threshold}. Train longer, or try fewer thresholds.",
                stacklevel=2,
            )

    def _each(self) -> int:
        return _SETTLING + self._batches

    def _geryon(self) -> Geryon:
        distribution = getattr(self.model.optimizer, "_trepak", None)
        transport = distribution.reducer.options.transport if distribution else None
        if not isinstance(transport, Geryon) or len(transport.options.dscp) != 2:
            raise ValueError(
                "PriorityThresholdTuning needs DistributedOptimizer(..., transport=Geryon()) with "
                "two priorities."
            )
        return transport

    def _choose(self) -> None:
        mine = [float(np.median(times)) for times in self._times]
        everyone = np.mean(exchange.gather(mine, "times of batches, by threshold"), axis=0)
        self.trials = [
            Trial(threshold, float(seconds))
            for threshold, seconds in zip(self._thresholds, everyone, strict=True)
        ]
        self.chosen = fitted_minimum(self.trials)
        self._geryon().set_threshold(self.chosen)
        if basics.rank() != 0:
            return
        if self._verbose:
            tried = ", ".join(f"{t.threshold:g}: {1000 * t.seconds:.1f} ms" for t in self.trials)
            print(f"priority threshold {self.chosen:.2f} (a batch took, by threshold, {tried})")
        if self._figure is not None:
            draw_trials(self.trials, self.chosen, Path(self._figure))


def _fit(trials: Sequence[Trial]) -> Any:
    thresholds, seconds = zip(*trials, strict=True)
    return np.polynomial.Polynomial.fit(thresholds, seconds, _DEGREE)


def fitted_minimum(trials: Sequence[Trial]) -> float:
    """Returns where the fitted time of a batch is least, between the thresholds that were tried.

    Args:
        trials: at least three.
    """
    thresholds = [trial.threshold for trial in trials]
    points = np.linspace(min(thresholds), max(thresholds), _POINTS)
    return float(points[int(np.argmin(_fit(trials)(points)))])


def draw_trials(trials: Sequence[Trial], chosen: float, path: Path) -> None:
    """Writes a PNG of the time of a batch over the threshold, measured and fitted.

    Args:
        trials: what was tried.
        chosen: the threshold that was kept.
        path: the file to write.
    """
    from matplotlib.figure import Figure

    figure = Figure(figsize=(6, 3.8), dpi=150, layout="constrained")
    axes = figure.subplots()
    thresholds, seconds = zip(*trials, strict=True)
    points = np.linspace(min(thresholds), max(thresholds), _POINTS)
    axes.plot(thresholds, [1000 * one for one in seconds], "o", label="measured")
    axes.plot(points, 1000 * _fit(trials)(points), label="fitted")
    axes.axvline(chosen, color="black", linewidth=0.8, linestyle="--", label="kept")
    axes.set(xlabel="priority threshold (urgency)", ylabel="time of a batch, ms")
    axes.legend(frameon=False)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path)

"""Averages the logs of `fit` over the ranks, each rank weighing as much as its samples."""

from __future__ import annotations

from typing import Any

import keras

from trepak.horovod_ext import exchange
from trepak.tf_plugins.distributed_optimizer import flush


class MetricAverageCallback(keras.callbacks.Callback):
    """Replaces the epoch's logs by their averages over all ranks.

    Ranks are weighed by the number of samples (or the sum of sample weights) that their value
    comes from, so that uneven shards give the value that one process over all data would. Put it
    before callbacks that read the logs: ReduceLROnPlateau, ModelCheckpoint, TensorBoard.
    """

    def __init__(self, device: str = "") -> None:
        """Makes the callback; `device` is accepted for Horovod scripts (the logs are Python's)."""
        super().__init__()
        self._train_counts: dict[str, float] = {}
        self._test_counts: dict[str, float] = {}

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        """Forgets the counts of the epoch before."""
        self._train_counts, self._test_counts = {}, {}

    def on_test_begin(self, logs: Any = None) -> None:
        """Notes the training counts, before validation resets the metrics."""
        if not self._train_counts:
            self._train_counts = self._counts()

    def on_test_end(self, logs: Any = None) -> None:
        """Notes the validation counts."""
        self._test_counts = self._counts()

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        """Averages the logs in place; a collective call."""
        if logs is None:
            return
        if not self._train_counts:
            self._train_counts = self._counts()
        flush(
            self.model
        )  # before any exchange: ranks that still train may need this one's gradients
        mine = {name: [float(v), self._count(name)] for name, v in logs.items() if _is_number(v)}
        everyone = exchange.gather(mine, "metrics")
        for name in mine:
            seen = [theirs[name] for theirs in everyone if name in theirs]
            total = sum(count for _, count in seen)
            if total > 0:
                logs[name] = sum(v * count for v, count in seen if count) / total

    def _counts(self) -> dict[str, float]:
        """Returns, per metric that is a weighted mean, the weight seen so far."""
        found = {}
        for metric in _flatten(self.model.metrics):
            if isinstance(metric, keras.metrics.Mean):
                found[metric.name] = float(metric.count)
        return found

    def _count(self, name: str) -> float:
        """Returns the samples behind a log entry; those of the loss where it keeps no count."""
        validation = name.startswith("val_")
        counts = self._test_counts if validation else self._train_counts
        return counts.get(name.removeprefix("val_"), counts.get("loss", 1.0))


def _flatten(metrics: Any) -> Any:
    for metric in metrics:
        if hasattr(metric, "metrics"):  # Keras' CompileMetrics holds the compiled ones
            yield from _flatten(metric.metrics)
        yield metric


def _is_number(value: Any) -> bool:
    try:
        float(value)
    except (TypeError, ValueError):
        return False
    return True

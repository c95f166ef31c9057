"""How a training of clicks goes: shown by rank 0 as it goes, and kept for the report."""

from __future__ import annotations

import argparse
import statistics
import time
from collections import Counter
from typing import Any

import keras
import numpy as np

import trepak.keras as hvd
from trepak.models.auc import auc
from trepak.scripts.examples.ctr_data import Data

_SHOWN_SECONDS = 10.0
_PREDICTED = 1024  # samples of a batch


class Progress(keras.callbacks.Callback):
    """Measures training alone, without validation, and after each epoch what is held out.

    Attributes:
        samples: by epoch, of all ranks, that have been trained by its end.
        loss: by epoch, of all ranks, in training.
        auc: by epoch, of all samples that are held out.
        most_stale: updates that a look-up has missed at most.
        counted: what this rank's tables have counted in training alone.
    """

    def __init__(self, embedding: Any, data: Data, options: argparse.Namespace) -> None:
        super().__init__()
        self._embedding, self.data = embedding, data
        self._batch_size, self._epochs = options.batch_size, options.epochs
        self._rates: list[float] = []
        self.samples: list[int] = []
        self.loss: list[float] = []
        self.auc: list[float] = []
        self.most_stale = 0
        self.counted: Counter[str] = Counter()

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        """Starts the clock."""
        self._epoch = epoch
        self.counted.subtract(self._embedding.tables.statistics())
        self._start = self._shown = time.perf_counter()

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        """Reads the clock; shows how an epoch goes that takes long."""
        self._batches, self._end = batch + 1, time.perf_counter()
        self.most_stale = max(self.most_stale, self._embedding.tables.permits()["most_stale"])
        if self._end - self._shown > _SHOWN_SECONDS:
            self._shown = self._end
            self._show(f"loss {logs['loss']:.4f} so far")

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        """Adds the epoch up, and looks at what is held out; a collective call."""
        self.counted.update(self._embedding.tables.statistics())
        self._rates.append(self._rate())
        self.samples.append(sum(self.samples[-1:]) + self._batches * self._batch_size)
        self.loss.append(logs["loss"])
        self.auc.append(self._held_out_auc())
        self._show(f"loss {self.loss[-1]:.4f}  AUC {self.auc[-1]:.4f}")

    def samples_per_second(self) -> float:
        """Returns the rate of all ranks together: the median of epochs, but for the first one."""
        return statistics.median(self._rates[1:] or self._rates)  # which compiles

    def _rate(self) -> float:
        return self._batches * self._batch_size / (self._end - self._start)

    def _held_out_auc(self) -> float:
        """Returns the exact AUC of all ranks' samples: their scores are gathered."""
        inputs, labels = self.data.held_out
        scores = self.model.predict(inputs, batch_size=_PREDICTED, verbose=0)
        gathered = hvd.allgather(np.hstack([scores, labels]), name="scores held out").numpy()
        return auc(gathered[:, 0], gathered[:, 1])

    def _show(self, found: str) -> None:
        if hvd.rank() == 0:
            samples = self._batches * self._batch_size
            print(
                f"epoch {self._epoch + 1}/{self._epochs}  {samples:>11,} samples  "
                f"{self._rate():>7,.0f} samples/s  {found}",
                flush=True,
            )

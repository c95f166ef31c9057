"""One rank of the lab's part of `trepak bench chicle` in which nothing changes."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import trepak

# isort: split
import keras
import numpy as np

import trepak.keras as hvd
from trepak import chicle
from trepak.scripts.bench import rank
from trepak.scripts.bench.chicle_emulated import network
from trepak.scripts.bench.chicle_rigid import BSP, CHUNKED, Rigid
from trepak.tf_plugins.chicle.drawing import DRAWN

_CHUNK_BYTES = 1 << 11


class _Steps(keras.callbacks.Callback):
    """Times the steps after the first ones, with all that happens between them.

    Attributes:
        seconds: of a step, on average.
    """

    def __init__(self, warm: int, steps: int) -> None:
        super().__init__()
        self._warm, self._steps = warm, steps
        self.seconds = 0.0

    def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
        if batch == self._warm:
            self._began = time.perf_counter()
        elif batch == self._warm + self._steps:
            self.seconds = (time.perf_counter() - self._began) / self._steps


def measure(wanted: Rigid) -> list[dict[str, float]]:
    """Returns by round and way the seconds of a step."""
    one = np.zeros((1 << 10, 1), np.float32)
    # A batch is a chunk, so that both ways have the same samples in each step.
    batch = chicle.Cutting({"0": one, "1": one}, [DRAWN], _CHUNK_BYTES).sizes[0]
    count = batch * (wanted.warm + wanted.steps + 1)
    x = np.random.default_rng(trepak.rank()).standard_normal((count, 1), np.float32)
    fits = {BSP: _plainly(wanted, x, batch), CHUNKED: _in_chunks(wanted, x, batch)}
    for fit in fits.values():
        fit()  # traces
    rounds = []
    for order in rank.rounds_of(list(fits), wanted.rounds):
        times = {}
        for way in order:
            trepak.barrier()
            times[way] = fits[way]()
        rounds.append(times)
    return rounds


def _plainly(wanted: Rigid, x: np.ndarray, batch: int) -> Callable[[], float]:
    model = _model(wanted.milliseconds / batch, trepak.BSP())
    return lambda: _timed(wanted, model, x=x, y=x, batch_size=batch)


def _in_chunks(wanted: Rigid, x: np.ndarray, batch: int) -> Callable[[], float]:
    model = _model(wanted.milliseconds / batch, trepak.LocalSGD(H=1))
    data = chicle.ChunkedDataset(x, x, batch_size=batch, chunk_bytes=_CHUNK_BYTES)
    return lambda: _timed(wanted, model, x=data)


def _model(milliseconds: float, sync: Any) -> keras.Model:
    model = network(milliseconds)
    optimizer = hvd.DistributedOptimizer(keras.optimizers.SGD(1e-3, momentum=0.9), sync=sync)
    model.compile(optimizer, "mse")
    return model


def _timed(wanted: Rigid, model: keras.Model, **data: Any) -> float:
    """Trains an epoch; returns the seconds of a step."""
    steps = _Steps(wanted.warm, wanted.steps)
    callbacks = [hvd.callbacks.BroadcastGlobalVariablesCallback(0), steps]
    model.fit(**data, epochs=1, verbose=0, callbacks=callbacks)
    return steps.seconds


if __name__ == "__main__":
    rank.main(measure)

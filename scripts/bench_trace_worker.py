"""One rank of `trepak bench trace`: trains one model with marks and a timeline, one without."""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from pathlib import Path
from typing import Any

import trepak.keras as hvd  # before Keras: it keeps TensorFlow's start-up noise off the terminal

# isort: split
import keras
import numpy as np

import trepak
from trepak.horovod_ext import step_probe, timeline
from trepak.ops.timeline import close_timeline
from trepak.scripts.bench_trace import OFF, ON
from trepak.scripts.bsp_arms import build_model

_SETTLE_STEPS = 3


class StepTimes(keras.callbacks.Callback):
    """Notes how long each step takes."""

    def __init__(self) -> None:
        """Makes an empty list."""
        super().__init__()
        self.times: list[float] = []

    def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
        """Notes the begin."""
        self._began = time.perf_counter()

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        """Notes the end."""
        self.times.append(time.perf_counter() - self._began)


def compiled(x: np.ndarray, y: np.ndarray) -> keras.Model:
    """Returns a model whose step is traced now, with marks if they are enabled now."""
    keras.utils.set_random_seed(0)
    model = build_model()
    model.compile(
        hvd.DistributedOptimizer(keras.optimizers.SGD(0.01)),
        loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        jit_compile=False,
    )
    model.fit(x, y, batch_size=len(x), verbose=0)
    return model


def steps_of(model: keras.Model, x: np.ndarray, y: np.ndarray, steps: int) -> list[float]:
    """Takes steps with the same batch; returns how long each took, in seconds."""
    times = StepTimes()
    count = steps + _SETTLE_STEPS
    batches = np.concatenate([x] * count), np.concatenate([y] * count)
    model.fit(*batches, batch_size=len(x), verbose=0, shuffle=False, callbacks=[times])
    return times.times[_SETTLE_STEPS:]


def main() -> None:
    """Measures together with the other ranks; rank 0 writes what all measured."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, required=True)
    parser.add_argument("--steps", type=int, required=True)
    parser.add_argument("--output", type=Path, required=True)
    options = parser.parse_args()
    hvd.init()
    rng = np.random.default_rng(hvd.rank())
    x = rng.normal(size=(96, 8, 8, 1)).astype("float32")
    y = rng.integers(0, 10, 96)
    models = {OFF: compiled(x, y)}
    step_probe.enable()
    models[ON] = compiled(x, y)
    rounds, size = [], 0
    with tempfile.TemporaryDirectory() as folder:
        for number in range(options.rounds):
            taken = {}
            for arm in (ON, OFF) if number % 2 else (OFF, ON):
                hvd.barrier()
                if arm == ON:
                    file = timeline.open_for(hvd.rank(), hvd.size(), folder)
                taken[arm] = steps_of(models[arm], x, y, options.steps)
                if arm == ON:
                    close_timeline()
                    size = file.stat().st_size
            rounds.append(taken)
    per_step = size / (options.steps + _SETTLE_STEPS)
    outcomes = trepak.allgather_object({"rounds": rounds, "bytes": per_step})
    if hvd.rank() == 0:
        options.output.write_text(json.dumps(outcomes))
    hvd.shutdown()


if __name__ == "__main__":
    main()

"""One rank of `trepak bench trace`: trains one model with marks and a timeline, one without."""

from __future__ import annotations

import tempfile
import time
from typing import Any

import trepak.keras as hvd  # before Keras: it keeps TensorFlow's start-up noise off the terminal

# isort: split
import keras
import numpy as np
import tensorflow as tf

from trepak.horovod_ext import step_probe, timeline
from trepak.ops.timeline import close_timeline
from trepak.scripts.bench import rank
from trepak.scripts.bench.bench_trace import OFF, ON
from trepak.scripts.bench.bsp_methods import build_model

_WARM_TURNS = 3


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


class Steps:
    """Takes single steps of two models by turns: what drifts on the machine, both have alike."""

    _TURNS = (ON, OFF, OFF, ON)

    def __init__(self, models: dict[str, keras.Model], x: np.ndarray, y: np.ndarray) -> None:
        """Gives each model an endless stream of the same batch."""
        self._models = models
        batch = tf.data.Dataset.from_tensors((x, y)).repeat()
        self._batches = {method: iter(batch) for method in models}

    def take(self, turns: int) -> dict[str, list[float]]:
        """Takes two steps of each model per turn; returns the seconds of every step."""
        times: dict[str, list[float]] = {method: [] for method in self._models}
        for method in self._TURNS * turns:
            began = time.perf_counter()
            self._models[method].train_function(self._batches[method])
            times[method].append(time.perf_counter() - began)
        return times


def measure(spec: dict[str, int]) -> dict[str, Any]:
    """Takes so many `rounds` of so many `turns` of four steps.

    Returns:
        `rounds`: a list of {method: seconds of each step}, and the timeline's `bytes` per step.
    """
    rng = np.random.default_rng(hvd.rank())
    x = rng.normal(size=(96, 8, 8, 1)).astype("float32")
    y = rng.integers(0, 10, 96)
    models = {OFF: compiled(x, y)}
    step_probe.enable()
    models[ON] = compiled(x, y)
    steps = Steps(models, x, y)
    with tempfile.TemporaryDirectory() as folder:
        # Only the graph of one model has marks: the other writes nothing.
        file = timeline.open_for(hvd.rank(), hvd.size(), folder)
        steps.take(_WARM_TURNS)
        rounds = [steps.take(spec["turns"]) for _ in range(spec["rounds"])]
        close_timeline()
        size = file.stat().st_size
    marked = 2 * (_WARM_TURNS + spec["rounds"] * spec["turns"])
    return {"rounds": rounds, "bytes": size / marked}


if __name__ == "__main__":
    rank.main(measure)

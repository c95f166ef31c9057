"""An elastic `fit` with a ChunkedDataset: notes which samples each epoch has trained on.

$OUT/log has a line for each step: the iteration in which `fit` was started, the present one, the
epoch that the state counts, rank, size, pid, and the samples' numbers. $OUT/rolls has one for each
start of `fit`. The samples' first column is their number.
"""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Any

import keras
import numpy as np
import tensorflow as tf

import trepak
import trepak.keras as hvd
from trepak import chicle
from trepak.horovod_ext import membership

OUT = Path(os.environ["OUT"])
EPOCHS = int(os.environ.get("EPOCHS", "8"))
PAUSE = float(os.environ.get("PAUSE", "0.1"))  # of each step
SAMPLES, BATCH = 480, 8


def samples() -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(SAMPLES, 6)).astype("float32")
    y = (x[:, 1:] @ rng.normal(size=(5, 3))).astype("float32")
    x[:, 0] = np.arange(SAMPLES) / SAMPLES
    return x, y


class Recording(keras.Sequential):
    """Writes down which samples it trains on."""

    state: Any = None
    fits = 0

    def train_step(self, data: Any) -> Any:
        def note(numbers: Any) -> None:
            time.sleep(PAUSE)
            rows = [round(float(number) * SAMPLES) for number in numbers]
            about = [self.fits, self.state._data.iterations.iterations, self.state.epoch]
            line = [*about, hvd.rank(), hvd.size(), os.getpid(), rows]
            with (OUT / "log").open("a") as log:
                log.write(json.dumps(line) + "\n")

        tf.numpy_function(note, [data[0][:, 0]], [])
        return super().train_step(data)


def main() -> None:
    hvd.init()
    keras.utils.set_random_seed(hvd.rank())
    layers = [keras.Input((6,)), keras.layers.Dense(8, activation="tanh"), keras.layers.Dense(3)]
    model = Recording(layers)
    optimizer = hvd.DistributedOptimizer(
        keras.optimizers.SGD(0.02, momentum=0.9), sync=trepak.LocalSGD(H=2)
    )
    model.compile(optimizer, loss="mse", jit_compile=False)
    data = chicle.ChunkedDataset(
        chicle.Arrays(*samples()), batch_size=BATCH, chunk_bytes=1600, commit_seconds=0.3
    )
    state = hvd.elastic.KerasState(model, data=data, epoch=0, losses=[])
    model.state = state

    class Losses(keras.callbacks.Callback):
        def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
            state.losses = [*state.losses, float(logs["loss"])]

    @hvd.elastic.run
    def train(state: Any) -> None:
        model.fits = data.iterations.iterations
        with (OUT / "rolls").open("a") as rolls:
            about = [model.fits, state.epoch, hvd.rank(), hvd.size(), os.getpid()]
            rolls.write(json.dumps([*about, membership.host(), data.statistics()["chunks"]]) + "\n")
        model.fit(
            data,
            initial_epoch=state.epoch,
            epochs=EPOCHS,
            verbose=0,
            callbacks=[
                hvd.callbacks.BroadcastGlobalVariablesCallback(0),
                hvd.elastic.UpdateEpochStateCallback(state),
                Losses(),
            ],
        )

    train(state)
    weights = float(sum(np.sum(w) for w in model.get_weights()))
    told = {"rank": hvd.rank(), "size": hvd.size(), "weights": weights, "losses": state.losses}
    (OUT / f"done.{os.getpid()}").write_text(json.dumps(told))


if __name__ == "__main__":
    main()

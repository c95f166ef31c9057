"""Elastic `fit`: writes each epoch's rank, size and loss to $OUT/log.

With WAY=geryon gradients travel on Geryon's flows, and overlap the next step.
"""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

import keras
import numpy as np

import trepak
import trepak.keras as hvd

OUT = Path(os.environ["OUT"])
EPOCHS = int(os.environ.get("EPOCHS", "8"))


class Log(keras.callbacks.Callback):
    def __init__(self, state: Any) -> None:
        super().__init__()
        self.state = state

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        time.sleep(0.1)

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        weights = float(sum(np.sum(w) for w in self.model.get_weights()))
        line = (
            f"epoch {self.state.epoch} rank {hvd.rank()} size {hvd.size()} pid {os.getpid()} "
            f"steps {int(self.model.optimizer.iterations)} weights {weights:.9g}\n"
        )
        with (OUT / "log").open("a") as log:
            log.write(line)


def main() -> None:
    hvd.init()
    keras.utils.set_random_seed(hvd.rank())
    layers = [keras.Input((6,)), keras.layers.Dense(8, activation="tanh"), keras.layers.Dense(3)]
    model = keras.Sequential(layers)
    transport = trepak.Geryon() if os.environ.get("WAY") == "geryon" else None
    optimizer = hvd.DistributedOptimizer(keras.optimizers.Adam(0.01), transport=transport)
    model.compile(optimizer, loss="mse", jit_compile=False)
    if transport is not None:
        trepak.overlap(model)
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(80, 6)).astype("float32"), rng.normal(size=(80, 3))
    state = hvd.elastic.KerasState(model, batch=0, epoch=0)

    @hvd.elastic.run
    def train(state: Any) -> None:
        # A second optimizer, made anew after each reset, with collectives of its own.
        other = hvd.DistributedOptimizer(keras.optimizers.SGD(0.1))
        other.apply([np.ones(2, "float32")], [keras.Variable(np.zeros(2, "float32"))])
        callbacks = [
            hvd.callbacks.BroadcastGlobalVariablesCallback(0),
            Log(state),
            hvd.elastic.UpdateEpochStateCallback(state),
            hvd.elastic.UpdateBatchStateCallback(state),
            hvd.elastic.CommitStateCallback(state),
        ]
        remaining = EPOCHS - state.epoch
        model.fit(x, y, batch_size=8, epochs=remaining, verbose=0, callbacks=callbacks)

    train(state)
    (OUT / f"done.{os.getpid()}").write_text(f"{hvd.rank()} {hvd.size()} {state.epoch}")


if __name__ == "__main__":
    main()

"""Elastic `fit`: writes each epoch's rank, size and loss to $OUT/log.

Ranks share the rows of the data. Where `fit` begins it writes to $OUT/begun what was done before,
and the model writes which rows it trains on to $OUT/trained. With WAY=geryon, where it does not,
gradients travel on Geryon's flows, and overlap the next step. With WAY=local_sgd ranks apply their
own, and average every second step. With WAY=fela they train by tokens, with WAY=fela_stale they
may be ahead of others. The first rank of a host calls `leave` when there is the file
$OUT/leave.HOST. Training ends before all epochs, after the epoch that $OUT/enough tells.
"""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

import keras
import numpy as np
import tensorflow as tf

import trepak
import trepak.keras as hvd

OUT = Path(os.environ["OUT"])
FELA = {"fela": 0, "fela_stale": 1}  # by way, the staleness
EPOCHS = int(os.environ.get("EPOCHS", "8"))
ROWS, BATCH = 80, 8


def write(file: str, line: str) -> None:
    with (OUT / file).open("a") as log:
        log.write(line + "\n")


class Log(keras.callbacks.Callback):
    def __init__(self, state: Any) -> None:
        super().__init__()
        self.state = state

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        time.sleep(0.1)

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        weights = float(sum(np.sum(w) for w in self.model.get_weights()))
        host = os.environ["HOROVOD_HOSTNAME"]
        line = (
            f"epoch {self.state.epoch} rank {hvd.rank()} size {hvd.size()} pid {os.getpid()} "
            f"host {host} steps {int(self.model.optimizer.iterations)} weights {weights:.9g}"
        )
        write("log", line)
        if (OUT / f"leave.{host}").exists() and hvd.local_rank() == 0:
            hvd.elastic.leave()
        enough = OUT / "enough"
        if enough.exists() and self.state.epoch >= int(enough.read_text()):
            self.model.stop_training = True


class Recording(keras.Sequential):
    """Writes down which rows it trains on: their first column holds their numbers."""

    state: Any = None
    fits = 0

    def train_step(self, data: Any) -> Any:
        def note(numbers: Any) -> None:
            rows = " ".join(str(round(number * ROWS)) for number in numbers)
            write("trained", f"{self.fits} {self.state.epoch} {rows}")

        tf.numpy_function(note, [data[0][:, 0]], [])
        return super().train_step(data)


def main() -> None:
    hvd.init()
    keras.utils.set_random_seed(hvd.rank())
    layers = [keras.Input((6,)), keras.layers.Dense(8, activation="tanh"), keras.layers.Dense(3)]
    way = os.environ.get("WAY")
    transport = trepak.Geryon() if way == "geryon" else None
    model = keras.Sequential(layers) if way in ("geryon", *FELA) else Recording(layers)
    sync = trepak.LocalSGD(H=2) if way == "local_sgd" else None
    if way in FELA:
        name = model.layers[0].name
        fela = trepak.Fela(model, [name], threshold=2, staleness=FELA[way])
    optimizer = hvd.DistributedOptimizer(
        keras.optimizers.Adam(0.01), transport=transport, sync=sync
    )
    model.compile(optimizer, loss="mse", jit_compile=False)
    if transport is not None:
        trepak.overlap(model)
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(ROWS, 6)).astype("float32"), rng.normal(size=(ROWS, 3))
    x[:, 0] = np.arange(ROWS) / ROWS
    state = hvd.elastic.KerasState(model, batch=0, epoch=0, fits=0)
    model.state = state

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
            hvd.elastic.CommitStateCallback(state, 1 if sync is None else 2),
        ]
        state.fits += 1
        model.fits = state.fits
        before = (state.batch_counted_in or [None, 0])[1]
        write("begun", f"{state.fits} {state.epoch} {state.batch} {before} {hvd.size()}")
        mine = slice(hvd.rank(), None, hvd.size())
        model.fit(
            x[mine],
            y[mine],
            BATCH,
            epochs=EPOCHS - state.epoch,
            shuffle=False,
            verbose=0,
            callbacks=callbacks,
        )

    train(state)
    assert way not in FELA or fela.statistics()["iterations"] > 0
    (OUT / f"done.{os.getpid()}").write_text(f"{hvd.rank()} {hvd.size()} {state.epoch}")


if __name__ == "__main__":
    main()

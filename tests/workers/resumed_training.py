"""A training that is interrupted and goes on, compared with one that is not."""

from __future__ import annotations

import functools
import gc
from collections.abc import Callable, Sequence
from typing import Any

import features
import keras
import numpy as np
import tensorflow as tf
from horovod.common.exceptions import HostsUpdatedInterrupt

import trepak.keras as hvd

STEPS, BATCH = 5, 4


class Interrupted(Exception):
    """Stands for a lost rank."""


class Interruption(keras.callbacks.Callback):
    """Interrupts once, before a batch of an epoch begins, as Keras counts the batches."""

    def __init__(self, state: Any, epoch: int, batch: int, error: Callable[[], Exception]) -> None:
        super().__init__()
        self.state, self.at, self.error = state, (epoch, batch), error
        self.done = False

    def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
        if (self.state.epoch, batch) == self.at and not self.done:
            self.done = True
            raise self.error()


class Recording(keras.Sequential):
    """Notes the rows that it trains on, by the value of their first column."""

    def __init__(self, layers: Any) -> None:
        super().__init__(layers)
        self.seen: list[Any] = []

    def train_step(self, data: Any) -> Any:
        tf.numpy_function(lambda rows: self.seen.append(rows[:, 0].copy()), [data[0]], [])
        return super().train_step(data)


def recording(compiled: bool = False, **options: Any) -> Recording:
    """Returns a model; eager, unless `compiled`, because tracing takes longer than its steps."""
    keras.utils.set_random_seed(3)
    layers = [keras.Input((6,)), keras.layers.Dense(8, activation="tanh"), keras.layers.Dense(3)]
    model = Recording(layers)
    optimizer = hvd.DistributedOptimizer(keras.optimizers.Adam(0.01))
    model.compile(optimizer, loss="mse", run_eagerly=not compiled, **options)
    return model


@functools.cache
def uninterrupted(epochs: int) -> Any:
    """Returns the weights after so many whole epochs without callbacks of elastic training."""
    x, y = features.some_data(STEPS * BATCH, hvd.rank())
    model = recording()
    callbacks = [hvd.callbacks.BroadcastGlobalVariablesCallback(0)]
    model.fit(x, y, BATCH, epochs, shuffle=False, verbose=0, callbacks=callbacks)
    assert batches_seen(model, x) == list(range(STEPS)) * epochs
    return model.get_weights()


def batches_seen(model: Recording, x: Any) -> list[int]:
    """Returns the numbers of the batches of `x` that a model has trained on, in order."""
    first_rows = {float(row): number for number, row in enumerate(x[::BATCH, 0])}
    return [first_rows[float(rows[0])] for rows in model.seen]


def train_through_interruptions(state: Any, train: Callable[[], Any]) -> None:
    """Does what elastic.run does, where all ranks stay."""
    while True:
        state.sync()
        try:
            train()
            return
        except Interrupted:
            state.restore()
        except HostsUpdatedInterrupt:
            pass
        # TensorFlow 2.21 holds up who ends an iterator, the longer the older it is: don't let
        # the one of the epoch that was left wait for the garbage collector.
        gc.collect()


class Pairs(keras.utils.PyDataset):
    def __init__(self, x: Any, y: Any) -> None:
        super().__init__()
        self.x, self.y = x, y

    def __len__(self) -> int:
        return len(self.x) // BATCH

    def __getitem__(self, index: int) -> Any:
        rows = slice(index * BATCH, (index + 1) * BATCH)
        return self.x[rows], self.y[rows]


def batched(x: Any, y: Any) -> Any:
    return tf.data.Dataset.from_tensor_slices((x, y)).batch(BATCH)


def arguments(kind: str, x: Any, y: Any) -> dict[str, Any]:
    """Returns what `fit` is given, by the kind of data."""
    if kind == "arrays":
        return {"x": x, "y": y, "batch_size": BATCH}
    if kind == "dataset":
        return {"x": batched(x, y)}
    if kind == "unknown length":
        return {"x": batched(x, y).filter(lambda *_: True)}
    if kind == "PyDataset":
        return {"x": Pairs(x, y)}
    if kind == "repeated":
        return {"x": batched(x, y).repeat(), "steps_per_epoch": STEPS}
    # "part": two epochs and a half to a pass over the data
    return {"x": x, "y": y, "batch_size": BATCH, "steps_per_epoch": 2}


def epochs_of(kind: str) -> list[list[int]]:
    """Returns the batches of an uninterrupted training's epochs."""
    whole = list(range(STEPS))
    return [[0, 1], [2, 3], [4]] if kind == "part" else [whole, whole]


def check_resumed(
    kind: str,
    at: tuple[int, int] = (1, 3),
    committed: int = 3,
    error: Callable[[], Exception] = Interrupted,
    order: Sequence[int] = range(5),
    commit_every: int = 1,
    initial: bool = False,
    **options: Any,
) -> None:
    """Interrupts a training, and compares it with one that is not.

    Args:
        kind: of data.
        at: epoch and batch before which it is interrupted.
        committed: batches of that epoch that count as done then.
        error: makes what interrupts it.
        order: of the callbacks.
        commit_every: batches per commit.
        initial: whether `fit` is given initial_epoch, or fewer epochs.
        options: of `compile`.
    """
    x, y = features.some_data(STEPS * BATCH, hvd.rank())
    whole = epochs_of(kind)
    model = recording(**options)
    state = hvd.elastic.KerasState(model, batch=0, epoch=0)
    callbacks = [
        hvd.callbacks.BroadcastGlobalVariablesCallback(0),
        hvd.elastic.UpdateEpochStateCallback(state),
        hvd.elastic.UpdateBatchStateCallback(state),
        hvd.elastic.CommitStateCallback(state, commit_every),
        Interruption(state, *at, error),
    ]
    callbacks = [callbacks[one] for one in order]

    def fit() -> None:
        epochs = {"epochs": len(whole) - state.epoch}
        if initial:
            epochs = {"epochs": len(whole), "initial_epoch": state.epoch}
        given = arguments(kind, x, y)
        model.fit(**given, **epochs, shuffle=False, verbose=0, callbacks=callbacks)

    train_through_interruptions(state, fit)
    assert callbacks[order.index(4)].done
    assert (state.epoch, state.batch) == (len(whole), 0), (state.epoch, state.batch)
    before = [*whole[: at[0]], whole[at[0]][: at[1]]]
    after = [whole[at[0]][committed:], *whole[at[0] + 1 :]]
    expected = [batch for epoch in before + after for batch in epoch]
    assert batches_seen(model, x) == expected, (batches_seen(model, x), expected)
    reference = uninterrupted(sum(map(len, whole)) // STEPS)
    for ours, theirs in zip(model.get_weights(), reference, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-6, atol=1e-7)

"""An elastic state's count of epochs and batches, and epochs that go on where they stopped.

What interrupts a training here is an exception, after which it begins again as under elastic.run:
on all ranks, without new ones. Real jobs that lose and gain ranks are in tests/test_elastic.py.
"""

from __future__ import annotations

import functools
import gc
import itertools
import math
from collections.abc import Callable, Sequence
from typing import Any

import features
import keras
import numpy as np
import tensorflow as tf
from harness import case
from horovod.common.exceptions import HostsUpdatedInterrupt
from horovod.runner.elastic.discovery import HostUpdateResult

import trepak.keras as hvd
from trepak.tf_plugins.elastic_callbacks import converted

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


@case
def an_epoch_of_arrays_goes_on() -> None:
    check_resumed("arrays", initial=True, compiled=True)


@case
def an_epoch_of_a_dataset_goes_on() -> None:
    check_resumed("dataset", committed=1, commit_every=3, order=[2, 0, 1, 3, 4])


@case
def an_epoch_of_unknown_length_goes_on() -> None:
    check_resumed("unknown length", at=(0, 3), order=[3, 2, 1, 0, 4])


@case
def an_epoch_of_a_py_dataset_goes_on() -> None:
    check_resumed("PyDataset", at=(0, 1), committed=1, error=lambda: HostsUpdatedInterrupt(False))


@case
def an_epoch_of_repeated_data_goes_on() -> None:
    check_resumed("repeated", order=[3, 1, 2, 4, 0])


@case
def an_epoch_of_a_part_of_the_data_goes_on() -> None:
    check_resumed("part", at=(1, 1), committed=1)


@case
def calls_of_several_steps_go_on() -> None:
    """Batches 0 and 1, 2 and 3, and 4 are each trained in a call, which callbacks see."""
    check_resumed("arrays", at=(0, 2), committed=2, steps_per_execution=2)


@case
def a_call_begins_amid_its_steps() -> None:
    """Three batches were done, one by one, where a call now trains two."""
    x, y = features.some_data(STEPS * BATCH, hvd.rank())
    model = recording(steps_per_execution=2)
    state = hvd.elastic.KerasState(model, batch=3, epoch=0)
    callbacks = [
        hvd.elastic.UpdateBatchStateCallback(state),
        hvd.callbacks.BroadcastGlobalVariablesCallback(0),
    ]
    data = batched(x, y).repeat()
    model.fit(data, steps_per_epoch=STEPS + 1, epochs=2, verbose=0, callbacks=callbacks)
    assert batches_seen(model, x) == [3, 4, 0, 1, 2, 3, 4, 0, 1]


@case
def epochs_that_were_done_have_no_batches() -> None:
    """A rank was lost after an epoch's last batch, which ranks with more data did not know."""
    x, y = features.some_data((STEPS + hvd.rank()) * BATCH, hvd.rank())
    model = recording()
    state = hvd.elastic.KerasState(model, batch=STEPS, epoch=0)
    callbacks = [
        hvd.callbacks.BroadcastGlobalVariablesCallback(0),
        hvd.elastic.UpdateBatchStateCallback(state),
        hvd.elastic.UpdateEpochStateCallback(state),
    ]
    epochs = []
    callbacks.append(
        keras.callbacks.LambdaCallback(on_epoch_end=lambda epoch, logs: epochs.append(epoch))
    )
    model.fit(x, y, BATCH, epochs=2, shuffle=False, verbose=0, callbacks=callbacks)
    assert batches_seen(model, x) == list(range(STEPS)), batches_seen(model, x)
    assert epochs == [0, 1] and (state.epoch, state.batch) == (2, 0)
    features.assert_same_on_all_ranks(model)


@case
def batches_are_numbered_as_in_the_whole_epoch() -> None:
    x, y = features.some_data(STEPS * BATCH)
    model = recording()
    state = hvd.elastic.KerasState(model, batch=3, epoch=7)
    numbers: list[Any] = []
    note = keras.callbacks.LambdaCallback(
        on_train_batch_begin=lambda batch, logs: numbers.append(("begin", batch, state.batch)),
        on_train_batch_end=lambda batch, logs: numbers.append(("end", batch, state.batch)),
    )
    callbacks = [hvd.elastic.UpdateBatchStateCallback(state), note]
    model.fit(x, y, BATCH, verbose=0, callbacks=callbacks)
    assert numbers == [("begin", 3, 3), ("end", 3, 4), ("begin", 4, 4), ("end", 4, 5)], numbers


@case
def other_ranks_leave_out_what_was_done() -> None:
    """Rows that are left out were trained on, and few are trained on twice."""
    batches = 0
    for rows, before, now in itertools.product(range(1, 90), (1, 2, 3), (1, 2, 4)):
        old, new = (math.ceil(math.ceil(rows / size) / BATCH) for size in (before, now))
        for batch in range(old + 1):
            left_out = converted(batch, [old, before], [new, now])
            done, skipped = (
                min(rows, size * number * BATCH)
                for size, number in ((before, batch), (now, left_out))
            )
            if old == new:
                assert left_out == batch  # nothing tells that the rows are shared anew
                continue
            assert skipped <= done, (rows, before, now, batch)
            assert done - skipped < 2 * now * BATCH + 1, (rows, before, now, batch)
            batches += 1
    assert batches > 1000


@case
def ranks_that_have_done_other_batches_are_told_so() -> None:
    if hvd.size() == 1:
        return
    x, y = features.some_data(STEPS * BATCH)
    model = recording()
    state = hvd.elastic.KerasState(model, batch=hvd.rank(), epoch=0)
    try:
        model.fit(x, y, verbose=0, callbacks=[hvd.elastic.UpdateBatchStateCallback(state)])
    except ValueError as error:
        assert "state.batch is 1 on rank 1 and 0 on rank 0" in str(error), error
    else:
        raise AssertionError("no error")


@case
def new_hosts_lose_no_batch_between_commits() -> None:
    """Ranks go on from a commit: what was trained since the last one must be in it."""
    model = recording()
    state = hvd.elastic.KerasState(model, batch=0, epoch=0)
    model.layers[0].bias.assign(np.full(8, 5.0))
    state.batch = 2
    state.on_hosts_updated(1, HostUpdateResult.added)
    try:
        state.check_host_updates()
    except HostsUpdatedInterrupt:
        state.sync()
    else:
        raise AssertionError("no interrupt")
    assert state.batch == 2 and (np.asarray(model.layers[0].bias) == 5).all()

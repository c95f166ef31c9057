"""RNA in `fit`: epochs that all ranks share, and end together."""

from __future__ import annotations

import time
from typing import Any

import keras
import numpy as np
import tensorflow as tf
from exactness import dense_model
from harness import case, counted
from rna import batch, check_equal_on_all_ranks

import trepak
import trepak.keras as hvd
from trepak.horovod_ext import exchange
from trepak.horovod_ext.straggler_verdict import verdict_of


def fit_in_global_epochs(
    model: Any, optimizer: Any, more: Any = (), own_pace: bool = True
) -> tuple[list[int], list[float]]:
    """Trains for three epochs, on ranks of uneven speed.

    Returns:
        By rank, the number of its steps; by epoch, the loss of validation.
    """
    model.compile(optimizer, loss="mse", jit_compile=False)
    x, y = (np.concatenate(parts) for parts in zip(*(batch(i) for i in range(4)), strict=True))
    dataset = tf.data.Dataset.from_tensor_slices((x, y)).shuffle(32).batch(8)
    if own_pace:
        dataset = trepak.global_epochs(dataset, samples=400)
    else:
        dataset = dataset.repeat().take(400 // 8 // hvd.size())
    steps = []

    def pause(number: int, logs: Any) -> None:
        steps.append(number)
        time.sleep(0.01 + 0.02 * hvd.rank())

    history = model.fit(
        dataset,
        epochs=3,
        validation_data=(x, y),
        callbacks=[
            hvd.callbacks.BroadcastGlobalVariablesCallback(0),
            hvd.callbacks.MetricAverageCallback(),
            keras.callbacks.LambdaCallback(on_train_batch_end=pause),
            *more,
        ],
        verbose=0,
    )
    return exchange.gather(len(steps), "steps"), history.history["val_loss"]


def check_steps_of_all_ranks(steps: list[int], slack: int = 6) -> None:
    """Checks that `fit_in_global_epochs` had epochs of all ranks' steps, where nobody waits.

    While a rank stands still, and rounds with it, the others step on: no number of steps is too
    high. But with epochs of its own each rank would take all steps of three.
    """
    of_all = 3 * 400 // 8
    assert sum(steps) >= of_all - slack * hvd.size(), steps
    assert min(steps) < of_all, steps


@case
def epochs_are_of_all_ranks_together() -> Any:
    keras.utils.set_random_seed(3)
    model = dense_model()
    optimizer = hvd.DistributedOptimizer(keras.optimizers.SGD(0.01), sync=trepak.RNA(seed=4))
    rounds: list[int] = []
    look = keras.callbacks.LambdaCallback(
        on_epoch_end=lambda epoch, logs: rounds.append(int(optimizer.iterations))
    )
    monitor = trepak.callbacks.StragglerMonitor(every=1, verbose=int(hvd.rank() == 0))
    steps, losses = fit_in_global_epochs(model, optimizer, [look, monitor])
    check_equal_on_all_ranks(model)
    reports = monitor.table.reports()
    counters = counted(optimizer)
    mine = reports[hvd.rank()]
    assert mine.rounds == counters.rounds == rounds[-1]
    np.testing.assert_allclose(mine.null_share, 1 - counters.contributed / counters.rounds)
    assert [one.contributors for one in reports] == [reports[0].contributors] * hvd.size()
    np.testing.assert_allclose(mine.staleness, counters.staleness / max(1, counters.contributed))
    shares = sum(1 - one.null_share for one in reports)
    np.testing.assert_allclose(reports[0].contributors, shares, rtol=1e-6)
    assert "brought" in verdict_of(monitor.table)
    assert len(rounds) == 3
    assert all(theirs == rounds for theirs in exchange.gather(rounds, "rounds")), rounds
    assert losses[-1] < losses[0], losses
    check_steps_of_all_ranks(steps)
    return steps


@case
def uneven_data_and_early_stopping_end_on_all_ranks() -> Any:
    keras.utils.set_random_seed(3)
    model = dense_model()
    optimizer = hvd.DistributedOptimizer(keras.optimizers.SGD(0.0), sync=trepak.RNA(seed=4))
    model.compile(optimizer, loss="mse", jit_compile=False)
    x, y = batch(0)
    mine = 3 + 2 * hvd.rank()  # samples, in batches of 2: the last one is smaller
    history = model.fit(
        trepak.global_epochs(tf.data.Dataset.from_tensor_slices((x, y)).take(mine).batch(2), 64),
        epochs=9,
        validation_data=(x, y),
        callbacks=[
            hvd.callbacks.BroadcastGlobalVariablesCallback(0),
            hvd.callbacks.MetricAverageCallback(),
            keras.callbacks.EarlyStopping(patience=2),
        ],
        verbose=0,
    )
    ended = exchange.gather(len(history.history["val_loss"]), "epochs")
    assert ended == [3] * hvd.size(), ended  # the first, and two that are no better
    check_equal_on_all_ranks(model)


@case
def a_warm_up_does_not_part_replicas() -> None:
    keras.utils.set_random_seed(3)
    model = dense_model()
    optimizer = hvd.DistributedOptimizer(
        keras.optimizers.SGD(0.01, momentum=0.9), sync=trepak.RNA(seed=4)
    )
    warm_up = hvd.callbacks.LearningRateWarmupCallback(0.01, warmup_epochs=2, steps_per_epoch=10)
    fit_in_global_epochs(model, optimizer, [warm_up])
    check_equal_on_all_ranks(model)


@case
def later_epochs_have_steps_of_their_own() -> Any:
    """Tried up to three times: a rank that stands still for a second has taken the fewer steps."""
    for _ in range(3):
        by_rank = _steps_where_another_rank_is_fast_in_each_epoch()
        assert sum(map(sum, by_rank)) >= 3 * 480 / 8 - 6 * hvd.size(), by_rank
        if all(
            by_rank[epoch % 2][epoch] > 2 * by_rank[1 - epoch % 2][epoch]
            and abs(sum(steps[epoch] for steps in by_rank) - 480 / 8) <= 6 * hvd.size()
            for epoch in range(3)
        ):
            return by_rank
    raise AssertionError(by_rank)


def _steps_where_another_rank_is_fast_in_each_epoch() -> list[list[int]]:
    """Returns by rank, the same on all of them, the numbers of its steps in three epochs."""
    keras.utils.set_random_seed(3)
    model = dense_model()
    optimizer = hvd.DistributedOptimizer(keras.optimizers.SGD(0.01), sync=trepak.RNA(seed=4))
    model.compile(optimizer, loss="mse", jit_compile=False)
    dataset = tf.data.Dataset.from_tensor_slices(batch(0)).repeat().batch(8)
    steps = [0, 0, 0]
    epoch = -1

    def begin(number: int, logs: Any) -> None:
        nonlocal epoch
        epoch = number

    def pause(number: int, logs: Any) -> None:
        steps[epoch] += 1
        is_fast = hvd.rank() == epoch % 2  # another rank in each epoch
        time.sleep(0.02 if is_fast else 0.1)

    model.fit(
        trepak.global_epochs(dataset, samples=480).prefetch(1),
        epochs=3,
        callbacks=[
            hvd.callbacks.BroadcastGlobalVariablesCallback(0),
            keras.callbacks.LambdaCallback(on_epoch_begin=begin, on_train_batch_end=pause),
        ],
        verbose=0,
    )
    return exchange.gather(steps, "steps")


@case
def metrics_count_what_was_trained_with() -> None:
    """Batches of a size that is known beforehand, and an end of an epoch that is not."""
    keras.utils.set_random_seed(3)
    model = dense_model()
    optimizer = hvd.DistributedOptimizer(keras.optimizers.SGD(0.01), sync=trepak.RNA(seed=4))

    def one(y_true: Any, y_pred: Any) -> Any:
        return tf.cast(tf.abs(y_pred[:, 0]) >= 0, tf.float32)

    model.compile(optimizer, loss="mse", metrics=[one], jit_compile=False)
    dataset = tf.data.Dataset.from_tensor_slices(batch(0)).repeat().batch(8, drop_remainder=True)
    history = model.fit(
        trepak.global_epochs(dataset, samples=160),
        epochs=2,
        callbacks=[hvd.callbacks.BroadcastGlobalVariablesCallback(0)],
        verbose=0,
    )
    np.testing.assert_allclose(history.history["one"], 1.0)

"""What else local SGD promises: rates, ends of epochs, loops of one's own, what it refuses."""

from __future__ import annotations

import math
import os
import tempfile
import time
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

import keras
import numpy as np
import tensorflow as tf
from exactness import dense_model
from harness import case
from local_sgd import EPOCHS, RTOL, SGD, Adam, check_close, fitted, joined, same, shard
from rna import constant_trainer, expect, weights

import trepak
import trepak.keras as hvd
from trepak.horovod_ext import exchange


@case
def the_rate_follows_the_number_of_ranks() -> None:
    """In elastic jobs, where a step is traced once and ranks come and go."""
    os.environ["HOROVOD_ELASTIC"] = "1"
    try:
        for _ in range(hvd.rank()):
            hvd.DistributedOptimizer(SGD(0.1))  # others have made fewer
        optimizer = hvd.DistributedOptimizer(SGD(0.25), sync=trepak.LocalSGD(H=2))
        variable, step = constant_trainer(optimizer, 1.0 + hvd.rank())
        built = types.SimpleNamespace(built=True, weights=[variable])
        state = hvd.elastic.TensorFlowKerasState(built, optimizer)
        state.sync()
        step()
        mine = -0.25 * math.sqrt(hvd.size()) * (1 + hvd.rank())
        np.testing.assert_allclose(variable.numpy(), mine, rtol=RTOL)
        # A rank is lost, so that the others return to a commit and all go on from rank 0's.
        variable.assign(np.zeros(5, "float32"))
        state.sync()
        for _ in range(2):
            step()
        mean = -0.25 * math.sqrt(hvd.size()) * 2 * (1 + (hvd.size() - 1) / 2)
        np.testing.assert_allclose(variable.numpy(), mean, rtol=RTOL)
        assert optimizer._trepak.step.averages == 1
    finally:
        del os.environ["HOROVOD_ELASTIC"]


@case
def the_rate_is_scaled_in_steps_alone() -> None:
    """A callback, and the file of a model, see the rate that the optimizer was given."""
    rate = 0.25
    factor = math.sqrt(hvd.size())
    optimizer = hvd.DistributedOptimizer(SGD(rate), sync=trepak.LocalSGD(H=2))
    variable, step = constant_trainer(optimizer, 1.0)
    step()
    np.testing.assert_allclose(variable.numpy(), -rate * factor, rtol=RTOL)
    optimizer.learning_rate = 2 * rate
    step()
    np.testing.assert_allclose(variable.numpy(), -3 * rate * factor, rtol=RTOL)
    assert float(optimizer.learning_rate) == 2 * rate == optimizer.get_config()["learning_rate"]
    seen: list[float] = []
    note = keras.callbacks.LambdaCallback(
        on_epoch_end=lambda epoch, logs: seen.append(float(scaled.learning_rate))
    )
    halve = keras.callbacks.LearningRateScheduler(lambda epoch, now: now / 2)
    scaled = hvd.DistributedOptimizer(SGD(0.2), sync=trepak.LocalSGD(H=4))
    model = fitted(scaled, callbacks=[halve, note])
    np.testing.assert_allclose(seen, [0.1, 0.05], rtol=RTOL)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / f"{hvd.rank()}.keras"
        model.save(path)
        loaded = keras.saving.load_model(path)
    assert float(loaded.optimizer.learning_rate) == float(scaled.learning_rate)
    plain = hvd.DistributedOptimizer(SGD(0.2 * factor), sync=trepak.LocalSGD(4, False))
    check_close(weights(model), weights(fitted(plain, callbacks=[halve])))


def batch_normalized() -> Any:
    layers = [keras.layers.Dense(8), keras.layers.BatchNormalization(), keras.layers.Dense(3)]
    return keras.Sequential([keras.Input((6,)), *layers])


@case
def uneven_shards_end_together() -> None:
    """Whether their lengths are known or not, and with statistics of BatchNorm."""
    mine = shard(hvd.rank(), steps=5 + 2 * hvd.rank())

    def batches() -> Any:
        return iter(mine)

    shapes = (tf.TensorSpec((None, 6)), tf.TensorSpec((None, 3)))
    for known in (True, False):
        dataset = tf.data.Dataset.from_generator(batches, output_signature=shapes)
        if known:
            dataset = dataset.apply(tf.data.experimental.assert_cardinality(len(mine)))
        model = same(batch_normalized)
        optimizer = hvd.DistributedOptimizer(Adam(0.01), sync=trepak.LocalSGD(H=3))
        model.compile(optimizer, loss="mse", jit_compile=False)
        seen: list[Any] = []
        look = keras.callbacks.LambdaCallback(
            on_epoch_end=lambda epoch, logs, seen=seen, model=model: seen.append(weights(model))
        )
        broadcast = hvd.callbacks.BroadcastGlobalVariablesCallback(0)
        model.fit(dataset, epochs=2, callbacks=[broadcast, look], verbose=0)
        assert optimizer.statistics()["steps"] == 10, optimizer.statistics()
        assert optimizer._trepak.step.averages == 4
        for values in seen:
            prints = [value.tobytes().hex() for value in values]
            assert all(one == prints for one in exchange.gather(prints, "weights"))


@case
def ranks_that_have_joined_have_no_weight() -> None:
    """In a loop of one's own whose first rank has more steps; it counts no samples, but steps."""
    if not hvd.size() > 1:
        return
    optimizer = hvd.DistributedOptimizer(SGD(1.0), sync=trepak.LocalSGD(2, False))
    rank = hvd.rank()
    variable, step = constant_trainer(optimizer, 1.0 + rank)
    for _ in range(4 + (2 if rank == 0 else 0)):
        step()
    last = int(hvd.join())
    hvd.broadcast_variables([variable], root_rank=last)
    assert last == 0
    together = 4 * (1.0 + (hvd.size() - 1) / 2)
    np.testing.assert_allclose(variable.numpy(), -together - 2.0, rtol=RTOL)
    optimizer.flush()
    np.testing.assert_allclose(variable.numpy(), -together - 2.0, rtol=RTOL)


@case
def a_loop_tells_of_samples() -> None:
    """Of none, steps weigh; ranks may come to a flush with different numbers of them."""
    rank, size = hvd.rank(), hvd.size()
    for counts in (False, True):
        optimizer = hvd.DistributedOptimizer(SGD(1.0), sync=trepak.LocalSGD(100, False))
        variable, step = constant_trainer(optimizer, 1.0 + rank)
        for _ in range(1 + rank):
            if counts:
                optimizer.count_samples(3 * (rank + 1))
            step()
        optimizer.flush()
        shares = np.array([(r + 1) * (3 * (r + 1) if counts else 1) for r in range(size)])
        moved = np.array([(r + 1.0) ** 2 for r in range(size)])
        np.testing.assert_allclose(variable.numpy(), -np.average(moved, weights=shares), rtol=RTOL)
        optimizer.flush()  # nothing is left
        assert optimizer._trepak.step.averages == 1


@case
def a_model_counts_until_it_has_another_optimizer() -> None:
    x, y = np.ones((10, 6)), np.ones((10, 3))
    optimizer = hvd.DistributedOptimizer(SGD(0.1), sync=trepak.LocalSGD(H=4))
    model = same(dense_model)
    model.compile(optimizer, "mse", jit_compile=False)
    model.fit(x, y, batch_size=4, verbose=0)
    model.train_on_batch(x, y)
    counted = optimizer.statistics()
    assert (counted["steps"], counted["samples"], counted["averages"]) == (4, 20, 1), counted
    model.compile(hvd.DistributedOptimizer(SGD(0.1)), "mse", jit_compile=False)
    model.fit(x, y, verbose=0)
    assert optimizer.statistics() == counted


@case
def the_monitor_shows_who_comes_late_to_an_average() -> Any:
    slow = hvd.size() - 1
    pause = keras.callbacks.LambdaCallback(
        on_train_batch_begin=lambda batch, logs: time.sleep(0.15 if hvd.rank() == slow else 0.0)
    )
    monitor = hvd.callbacks.StragglerMonitor(every=3, verbose=0)
    optimizer = hvd.DistributedOptimizer(SGD(0.05), sync=trepak.LocalSGD(H=4))
    fitted(optimizer, callbacks=[pause, monitor])
    # Two averages amid each epoch; of the one at an epoch's end, which is no step's, nothing shows.
    assert 2 * EPOCHS - 1 <= monitor.table.steps <= 2 * EPOCHS, monitor.table.steps
    reports = monitor.table.reports()
    assert reports[0].waited_for == slow and reports[0].waited_seconds > 0.2, reports
    assert reports[slow].last_share == 1.0, reports
    assert optimizer._trepak.step.rounds().rounds == optimizer._trepak.step.averages
    return [one.waited_seconds for one in reports]


@case
def what_does_not_go_with_it_is_explained() -> None:
    def apply_with(sync: Any, make: Callable[[], Any] = lambda: SGD(0.1), **options: Any) -> Any:
        optimizer = hvd.DistributedOptimizer(make(), sync=sync, **options)
        optimizer.apply([tf.ones(2)], [keras.Variable(np.zeros(2, "float32"))])
        return optimizer

    sync = trepak.LocalSGD(H=2)
    for wrong in (0, -1, 1.5, True, None):
        expect("H must be a whole number", lambda wrong=wrong: trepak.LocalSGD(H=wrong))
    expect("op must be Average", lambda: apply_with(sync, op=hvd.Sum))
    expect("compression is not", lambda: apply_with(sync, compression=hvd.Compression.fp16))
    expect("carries the gradients", lambda: apply_with(sync, transport=trepak.Geryon()))
    expect("no predivide factor", lambda: apply_with(sync, gradient_predivide_factor=2.0))
    scaled = keras.optimizers.LossScaleOptimizer
    expect("loss scale of its own", lambda: apply_with(sync, lambda: scaled(SGD(0.1))))
    several = keras.optimizers.MultiOptimizer
    expect("inside a MultiOptimizer", lambda: apply_with(sync, lambda: several(lambda v: SGD(0.1))))
    sums = {"gradient_accumulation_steps": 2}
    expect("no gradients of one step", lambda: apply_with(sync, lambda: SGD(0.1, **sums)))
    optimizer = hvd.DistributedOptimizer(SGD(0.1), sync=sync)
    variable = keras.Variable(np.zeros(2, "float32"))
    loss = lambda: tf.reduce_sum(variable.value)  # noqa: E731
    expect("no gradients of one step", lambda: optimizer.compute_gradients(loss, [variable]))
    optimizer.register_local_var(variable)
    expect("is local to each rank", lambda: optimizer.apply([tf.ones(2)], [variable]))
    model = same(dense_model)
    model.compile(hvd.DistributedOptimizer(SGD(0.1), sync=sync), "mse", jit_compile=True)
    expect("compiled by XLA", lambda: model.fit(*joined(shard(hvd.rank())), verbose=0))
    expect("overlap() is for sync=BSP()", lambda: trepak.overlap(model))
    together = keras.Sequential([keras.Input((6,)), trepak.SyncBatchNormalization()])
    together.compile(hvd.DistributedOptimizer(SGD(0.1), sync=sync), "mse", jit_compile=False)
    broadcast = hvd.callbacks.BroadcastGlobalVariablesCallback(0)
    expect("apply their own", lambda: together.fit(np.ones((4, 6)), callbacks=[broadcast]))

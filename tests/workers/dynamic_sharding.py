"""Samples that ranks take from one order: each once before any again."""

from __future__ import annotations

import time
from collections import Counter
from typing import Any

import keras
import numpy as np
import tensorflow as tf
from harness import case
from rna import expect

import trepak
import trepak.keras as hvd
from trepak.horovod_ext import exchange
from trepak.tf_plugins.data.dynamic_sharding import shuffled

SAMPLES, MANY, BATCH = 50, 200, 4


def order(first: int, count: int, seed: int) -> list[int]:
    numbers: list[int] = shuffled(first, count, SAMPLES, seed).numpy().tolist()
    return numbers


@case
def each_sample_is_taken_once_before_any_again() -> Any:
    batches = iter(trepak.dynamic_sharding(SAMPLES, BATCH, seed=3))
    mine = []
    for _ in range(10 + 30 * hvd.rank()):
        mine.extend(next(batches).numpy().tolist())
        if hvd.rank() == 0:
            time.sleep(0.01)
    of_all = sum(exchange.gather(mine, "samples"), [])
    size = hvd.size()
    assert len(of_all) == BATCH * (10 * size + 30 * size * (size - 1) // 2)
    assert sorted(of_all) == sorted(order(0, len(of_all), seed=3))
    times = Counter(of_all)
    assert len(times) == min(SAMPLES, len(of_all))
    assert max(times.values()) - min(times.values()) <= 1, times
    return len(mine)


@case
def each_order_begins_anew() -> None:
    for seed in (1, 1, 2):
        batches = trepak.dynamic_sharding(SAMPLES, BATCH, seed)
        if hvd.rank() == hvd.size() - 1:
            taken = np.concatenate(list(batches.take(40).as_numpy_iterator())).tolist()
            assert taken == order(0, 160, seed)
            assert sorted(taken[:SAMPLES]) == sorted(taken[SAMPLES : 2 * SAMPLES])
            assert taken[:SAMPLES] != taken[SAMPLES : 2 * SAMPLES]
        exchange.gather(None, "the order's end")
    assert order(0, SAMPLES, 1) != order(0, SAMPLES, 2)


@case
def ranks_of_uneven_speed_train_evenly() -> Any:
    """With a loss that is linear, weights count how often each sample was trained with."""
    model = keras.Sequential([keras.Input((MANY,)), keras.layers.Dense(1, use_bias=False)])
    model.layers[0].kernel.assign(tf.zeros((MANY, 1)))
    optimizer = hvd.DistributedOptimizer(keras.optimizers.SGD(1.0), sync=trepak.ElasticBSP())
    model.compile(optimizer, loss=lambda _, y: tf.reduce_mean(y), jit_compile=False)
    steps = []

    def pause(number: int, logs: Any) -> None:
        steps.append(number)
        time.sleep(0.02 + 0.06 * hvd.rank())

    numbers = trepak.dynamic_sharding(MANY, BATCH, seed=5).prefetch(1)
    data = numbers.map(lambda n: (tf.one_hot(n, MANY), tf.zeros((BATCH, 1))))
    model.fit(
        trepak.global_epochs(data, samples=2 * MANY),
        epochs=2,
        callbacks=[
            hvd.callbacks.BroadcastGlobalVariablesCallback(0),
            keras.callbacks.LambdaCallback(on_train_batch_end=pause),
        ],
        verbose=0,
    )
    times = -model.layers[0].kernel.numpy().ravel() * BATCH * hvd.size()
    of_ranks = exchange.gather(len(steps), "steps")
    np.testing.assert_allclose(times, times.round(), atol=1e-3)
    assert times.sum().round() == BATCH * sum(of_ranks), (times, of_ranks)
    # Those that a rank has taken and not yet trained with are missing.
    assert times.max() - times.min() <= 2.1, (times, of_ranks)
    assert of_ranks[0] > 1.3 * of_ranks[-1] or hvd.size() == 1, of_ranks
    return of_ranks


@case
def wrong_numbers_are_refused() -> None:
    if hvd.size() > 1:
        shard = SAMPLES + hvd.rank()
        expect("not of a shard", lambda: trepak.dynamic_sharding(shard, BATCH))
        seed = np.int64(min(1, hvd.rank()))  # NumPy's numbers are as good
        expect(
            "dynamic_sharding's seed is 1 on rank",
            lambda: trepak.dynamic_sharding(SAMPLES, 4, seed),
        )
    expect("samples and batch_size must be at least 1", lambda: trepak.dynamic_sharding(0, 4))
    expect("samples and batch_size must be at least 1", lambda: trepak.dynamic_sharding(4, 0))

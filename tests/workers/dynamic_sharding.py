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
from trepak.tf_plugins.dynamic_sharding import shuffled

SAMPLES, BATCH = 50, 4


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
    trained = []
    for sync in (trepak.ElasticBSP(), trepak.RNA(seed=1)):
        model = keras.Sequential([keras.Input((SAMPLES,)), keras.layers.Dense(1, use_bias=False)])
        model.layers[0].kernel.assign(tf.zeros((SAMPLES, 1)))
        optimizer = hvd.DistributedOptimizer(keras.optimizers.SGD(1.0), sync=sync)
        model.compile(optimizer, loss=lambda _, y: tf.reduce_mean(y), jit_compile=False)
        steps = []

        def pause(number: int, logs: Any, steps: list[int] = steps) -> None:
            steps.append(number)
            time.sleep(0.01 + 0.02 * hvd.rank())

        numbers = trepak.dynamic_sharding(SAMPLES, BATCH, seed=5).prefetch(1)
        data = numbers.map(lambda n: (tf.one_hot(n, SAMPLES), tf.zeros((BATCH, 1))))
        model.fit(
            trepak.global_epochs(data, samples=4 * SAMPLES),
            epochs=3,
            callbacks=[
                hvd.callbacks.BroadcastGlobalVariablesCallback(0),
                keras.callbacks.LambdaCallback(on_train_batch_end=pause),
            ],
            verbose=0,
        )
        share = 1 if isinstance(sync, trepak.RNA) else hvd.size()
        times = -model.layers[0].kernel.numpy().ravel() * BATCH * share
        by_rank = exchange.gather(len(steps), "steps")
        trained.append({"steps": by_rank, "least": min(times), "most": max(times)})
        if isinstance(sync, trepak.ElasticBSP):
            np.testing.assert_allclose(times, times.round(), atol=1e-3)
            assert times.sum().round() == BATCH * sum(by_rank), trained
            # Those that a rank has taken and not yet trained with are missing.
            assert times.max() - times.min() <= 2.1, trained
        assert by_rank[0] > 1.3 * by_rank[-1] or hvd.size() == 1, trained
    return [{name: str(value) for name, value in one.items()} for one in trained]


@case
def wrong_numbers_are_refused() -> None:
    expect("samples and batch_size must be at least 1", lambda: trepak.dynamic_sharding(0, 4))
    expect("samples and batch_size must be at least 1", lambda: trepak.dynamic_sharding(4, 0))

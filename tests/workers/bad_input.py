"""Bad input: every rank must get a clear error, soon, and the job must go on afterwards."""

from __future__ import annotations

import functools
import time
from collections.abc import Callable
from typing import Any

import exactness
import features
import keras
import numpy as np
import tensorflow as tf
from harness import case

import trepak
import trepak.keras as hvd


def fails(expected: type[BaseException], function: Callable[[], Any], *words: str) -> str:
    """Checks that the call raises, within seconds, a message that holds all the words."""
    began = time.monotonic()
    try:
        function()
    except expected as error:
        took = time.monotonic() - began
        message = str(error)
        assert took < 10, f"took {took:.1f} s"
        missing = [word for word in words if word not in message]
        assert not missing, f"{missing} not in: {message}"
        return message
    raise AssertionError(f"{expected.__name__} was not raised")


def fit(model: Any, x_width: int = 6, callbacks: Any = None) -> None:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(16, x_width)).astype("float32")
    y = rng.normal(size=(16, 3)).astype("float32")
    model.fit(x, y, batch_size=8, verbose=0, callbacks=callbacks)


@case
def other_shape_in_an_allreduce() -> Any:
    value = tf.ones([2 + hvd.rank()])
    return fails(
        ValueError,
        lambda: trepak.allreduce(value, name="weights"),
        "weights",
        "rank 0 passed float32 [2]",
        "rank 1 passed float32 [3]",
        "same dtype and shape",
    )


@case
def other_dtype_in_a_grouped_allreduce() -> Any:
    dtype = tf.float32 if hvd.rank() == 0 else tf.float64
    return fails(
        ValueError,
        lambda: trepak.grouped_allreduce([tf.ones([2], dtype)], name="group"),
        "rank 0 passed ['float32 [2]']",
        "rank 1 passed ['float64 [2]']",
    )


@case
def other_root_in_a_broadcast() -> Any:
    return fails(
        ValueError, lambda: trepak.broadcast(tf.ones([2]), hvd.rank(), name="b"), "root_rank"
    )


def model_of(units: int, extra: bool = False) -> Any:
    layers = [keras.Input((6,)), keras.layers.Dense(units, name="hidden")]
    if extra:
        layers.append(keras.layers.Dense(4, name="extra"))
    model = keras.Sequential([*layers, keras.layers.Dense(3, name="last")])
    model.compile(hvd.DistributedOptimizer(keras.optimizers.SGD(0.1)), loss="mse")
    return model


@case
def other_shape_of_a_variable() -> Any:
    model = model_of(8 + hvd.rank())
    return fails(
        ValueError,
        lambda: fit(model),
        "hidden/kernel",
        "rank 1",
        "rank 0",
        "[6, 8]",
        "[6, 9]",
        "same model on every rank",
    )


@case
def other_shape_with_the_callback() -> Any:
    model = model_of(8 + hvd.rank())
    callbacks = [hvd.callbacks.BroadcastGlobalVariablesCallback(0)]
    return fails(ValueError, lambda: fit(model, callbacks=callbacks), "hidden/kernel", "rank 1")


@case
def another_layer_on_one_rank() -> Any:
    model = model_of(8, extra=hvd.rank() == 1)
    return fails(ValueError, lambda: fit(model), "extra/kernel", "rank 1", "8 and 6 variables")


@case
def other_dtype_of_a_variable() -> Any:
    def model() -> Any:
        dtype = "float32" if hvd.rank() == 0 else "float64"
        layer = keras.layers.Dense(3, name="only", dtype=dtype)
        built = keras.Sequential([keras.Input((6,)), layer])
        built.compile(hvd.DistributedOptimizer(keras.optimizers.SGD(0.1)), loss="mse")
        return built

    built = model()
    return fails(ValueError, lambda: fit(built), "only/kernel", "float64", "float32")


@case
def other_sources_of_a_tape() -> Any:
    v = tf.Variable(tf.ones([2 + hvd.rank()]), name="v")

    def step() -> None:
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(v * v)
        hvd.DistributedGradientTape(tape).gradient(loss, [v])

    return fails(ValueError, step, "'v'", "[3]", "[2]")


@case
def a_gradient_that_only_one_rank_has() -> Any:
    optimizer = hvd.DistributedOptimizer(keras.optimizers.SGD(0.1))
    v, w = keras.Variable([1.0], name="always"), keras.Variable([1.0], name="sometimes")
    grads = [tf.ones([1]), tf.ones([1]) if hvd.rank() == 0 else None]
    return fails(
        ValueError,
        lambda: optimizer.apply(grads, [v, w]),
        "sometimes",
        "with no gradient on rank 1",
        "with a gradient on rank 0",
    )


@case
def one_rank_ends_its_training_alone() -> Any:
    class Stop(keras.callbacks.Callback):
        def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
            self.model.stop_training = hvd.rank() == 1 and epoch == 1

    x, y = features.some_data(16)
    messages = []
    for sync in (trepak.BSP(), trepak.RNA(), trepak.ADPSGD()):
        optimizer = hvd.DistributedOptimizer(keras.optimizers.SGD(0.1), sync=sync)
        model = features.small_model(optimizer)
        callbacks = [hvd.callbacks.BroadcastGlobalVariablesCallback(0), Stop()]
        fit = functools.partial(model.fit, x, y, epochs=5, verbose=0, callbacks=callbacks)
        messages.append(
            fails(
                ValueError,
                fit,
                "whether training stops is True on rank 1 and False on rank 0",
                "MetricAverageCallback",
            )
        )
    return messages


@case
def batches_normalized_together_by_ranks_that_do_not_wait() -> Any:
    optimizer = hvd.DistributedOptimizer(keras.optimizers.SGD(0.1), sync=trepak.RNA())
    layers = [hvd.SyncBatchNormalization(name="together"), keras.layers.Dense(3)]
    model = keras.Sequential([keras.Input((6,)), *layers])
    model.compile(optimizer, loss="mse", jit_compile=False)
    callbacks = [hvd.callbacks.BroadcastGlobalVariablesCallback(0)]
    return fails(
        ValueError,
        lambda: fit(model, callbacks=callbacks),
        "layer together",
        "keras.layers.BatchNormalization",
    )


@case
def compiled_by_xla() -> Any:
    keras.utils.set_random_seed(0)
    model = exactness.dense_model()
    optimizer = hvd.DistributedOptimizer(keras.optimizers.SGD(0.1))
    model.compile(optimizer, loss="mse", jit_compile=True)
    return fails(ValueError, lambda: fit(model), "jit_compile=False", "collectives")


@case
def compiled_by_xla_in_a_loop_of_ones_own() -> Any:
    optimizer = hvd.DistributedOptimizer(keras.optimizers.SGD(0.1))
    v = tf.Variable([1.0])

    @tf.function(jit_compile=True)
    def step() -> None:
        optimizer.apply([v * 1.0], [v])

    return fails(ValueError, step, "jit_compile", "collectives")


@case
def options_that_exclude_each_other() -> Any:
    accumulating = keras.optimizers.SGD(0.1, gradient_accumulation_steps=2)
    sgd = keras.optimizers.SGD
    wrap = hvd.DistributedOptimizer
    return [
        fails(ValueError, lambda: wrap(accumulating, backward_passes_per_step=2), "exclude"),
        fails(
            ValueError,
            lambda: wrap(sgd(0.1), op=hvd.Sum, gradient_predivide_factor=2.0),
            "op=Average",
        ),
        fails(ValueError, lambda: wrap(sgd(0.1), op=trepak.Adasum), "Average or Sum"),
        fails(ValueError, lambda: wrap(sgd(0.1), groups=-1), "negative"),
        fails(ValueError, lambda: wrap(sgd(0.1), backward_passes_per_step=0), "at least 1"),
        fails(ValueError, lambda: wrap(wrap(sgd(0.1)), op=hvd.Sum), "already", "op=Average"),
        fails(TypeError, lambda: wrap("sgd"), "keras.optimizers.Optimizer"),
        fails(TypeError, lambda: wrap(sgd(0.1), sync="bsp"), "trepak.BSP()"),
        fails(TypeError, lambda: wrap(sgd(0.1), unknown=1), "unknown"),
    ]


@case
def ranks_at_different_points() -> Any:
    """One rank averages metrics while another compares variables: both are told."""
    tag = "this" if hvd.rank() == 0 else "that"
    return fails(
        RuntimeError, lambda: trepak.horovod_ext.exchange.gather(1, tag), "different ways", "rank"
    )


@case
def still_works_afterwards() -> Any:
    keras.utils.set_random_seed(0)
    model = features.small_model(hvd.DistributedOptimizer(keras.optimizers.SGD(0.1)))
    fit(model)
    mean = (hvd.size() - 1) / 2
    np.testing.assert_allclose(trepak.allreduce(tf.ones([2]) * hvd.rank()), [mean, mean])

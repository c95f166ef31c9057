"""Variables of narrow dtypes train, with every way to synchronize and to travel."""

from __future__ import annotations

import functools
from typing import Any

import keras
import numpy as np
import tensorflow as tf
from bad_input import fails
from harness import case

import trepak
import trepak.keras as hvd


def one_step(optimizer: Any, variables: list[Any], grads: list[Any]) -> None:
    optimizer.build(variables)
    tf.function(lambda: optimizer.apply(grads, variables))()
    if hasattr(optimizer, "flush"):
        optimizer.flush()


@case
def steps_of_narrow_variables() -> None:
    """Gradients of 0.5, 1.0 … are reduced in bfloat16 and float16, however they travel."""
    grads = [0.5 * (rank + 1) for rank in range(hvd.size())]
    ways: list[dict[str, Any]] = [
        {},
        {"compression": hvd.Compression.fp16},
        {"op": hvd.Sum, "groups": 1},
        {"transport": trepak.Geryon()},
        {"transport": trepak.ParameterServers()},
        {"sync": trepak.EagerSGD()},
    ]
    for options in ways:
        variables = [keras.Variable(np.ones(3), dtype=d) for d in ("bfloat16", "float16")]
        optimizer = hvd.DistributedOptimizer(keras.optimizers.SGD(1.0), **options)
        optimizer.build(variables)
        mine = [tf.constant([grads[hvd.rank()]] * 3, variable.dtype) for variable in variables]
        step = functools.partial(optimizer.apply, mine, variables)
        tf.function(step)()
        optimizer.flush()
        right = 1.0 - (np.sum(grads) if "op" in options else np.mean(grads))
        for variable in variables:
            value = tf.cast(variable.value, tf.float32).numpy()
            if "sync" in options:  # whose steps don't wait for others: the same in the end
                everyone = trepak.allgather(value[None]).numpy()
                assert (everyone == everyone[0]).all() and (value < 1).all(), value
            else:
                np.testing.assert_allclose(value, [right] * 3, rtol=2**-8, err_msg=str(options))


@case
def models_of_narrow_variables() -> None:
    """All ranks end with one model, and the callback has averaged BatchNorm's statistics."""
    rng = np.random.default_rng(hvd.rank())
    x, y = rng.normal(size=(16, 6)), rng.normal(size=(16, 3))
    keras.utils.set_random_seed(hvd.rank())
    keras.config.set_dtype_policy("bfloat16")
    layers = [keras.layers.Dense(4, "tanh"), keras.layers.BatchNormalization()]
    model = keras.Sequential([keras.Input((6,)), *layers, keras.layers.Dense(3)])
    keras.config.set_dtype_policy("float32")
    before = [tf.cast(w.value, tf.float32).numpy() for w in model.trainable_weights]
    # Not Adam: in bfloat16 its beta_2 of 0.999 is 1, and it does not move at all.
    model.compile(hvd.DistributedOptimizer(keras.optimizers.SGD(0.1, momentum=0.5)), "mse")
    callbacks = [hvd.callbacks.BroadcastGlobalVariablesCallback(0)]
    model.fit(x, y, batch_size=8, verbose=0, callbacks=callbacks)
    for weight in model.weights:
        everyone = trepak.allgather(tf.convert_to_tensor(weight.value)[None]).numpy()
        assert (everyone == everyone[0]).all(), weight.path
    assert all(w.dtype == "bfloat16" for w in model.trainable_weights)
    after = [tf.cast(w.value, tf.float32).numpy() for w in model.trainable_weights]
    assert any((a != b).any() for a, b in zip(before, after, strict=True))


@case
def ranks_at_their_own_pace_train_floating_point_numbers() -> None:
    variable = keras.Variable([1, 2], dtype="int32")
    optimizer = hvd.DistributedOptimizer(keras.optimizers.SGD(0.1), sync=trepak.ADPSGD())

    def step() -> None:
        optimizer.build([variable])
        optimizer.apply([tf.constant([1, 1])], [variable])

    fails(TypeError, step, f"rank {hvd.rank()}", "int32", "sync=BSP()")

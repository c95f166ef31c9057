"""What layers hold outside of variables is the root's, or ranks that differ are refused."""

from __future__ import annotations

from typing import Any

import keras
import numpy as np
import tensorflow as tf
from alike import SGD, on_first
from bad_input import fails
from harness import case

import trepak
import trepak.keras as hvd


def adapted(layer: Any, first: Any, others: Any) -> Any:
    layer.adapt(np.asarray(on_first(first, others)))
    return layer


def stateful_layers() -> dict[str, tuple[Any, Any]]:
    layers = keras.layers
    words = np.array([["a b"], ["c d"]] * 8, dtype=object)
    numbers = np.arange(16.0).reshape(16, 1)
    return {
        "text": (
            adapted(layers.TextVectorization(9, output_sequence_length=2), ["a b c"], ["c b a d"]),
            words,
        ),
        "tf_idf": (
            adapted(
                layers.TextVectorization(9, output_mode="tf_idf", pad_to_max_tokens=True),
                ["a b", "a"],
                ["c", "b c a"],
            ),
            words,
        ),
        "string": (adapted(layers.StringLookup(), ["a b"], ["c d", "a b"]), words),
        "integer": (adapted(layers.IntegerLookup(), [1, 2], [3, 1, 5]), numbers.astype("int64")),
        "bins": (adapted(layers.Discretization(num_bins=3), numbers, numbers**2), numbers),
        "mean": (adapted(layers.Normalization(), numbers, 3 * numbers), numbers),
    }


@case
def state_outside_of_variables() -> Any:
    """The broadcast gives all ranks the root's; without it, ranks that differ are refused."""
    for name, (layer, x) in stateful_layers().items():
        keras.utils.set_random_seed(0)
        dtype = "string" if x.dtype == object else x.dtype
        x = tf.constant(x)
        inner = [keras.Input((1,), dtype=dtype), layer]
        if name == "bins":
            inner.append(keras.layers.Reshape((1,)))
        if name not in ("mean", "tf_idf"):
            inner.append(keras.layers.Embedding(20, 4))
        model = keras.Sequential([*inner, keras.layers.Flatten(), keras.layers.Dense(3)])
        model.compile(hvd.DistributedOptimizer(SGD(0.1)), "mse")
        fit = {"x": x, "y": np.ones((16, 3)), "batch_size": 8, "verbose": 0}
        if hvd.size() > 1:
            told = [f"layer {model.layers[0].name!r}"]
            if name == "string":
                told += ['2 tokens ("a b"; hash', '3 tokens ("c d", "a b"; hash']
            fails(ValueError, lambda m=model, f=fit: m.fit(**f), "rank 0", *told)
            fails(ValueError, lambda m=model: trepak.compare_ranks(m), "rank 0")
        expected = model.layers[0](x) if hvd.rank() == 0 else None
        model.predict(x, verbose=0)  # traced with what it holds now
        model.fit(**fit, callbacks=[hvd.callbacks.BroadcastGlobalVariablesCallback(0)])
        if expected is not None:
            np.testing.assert_array_equal(model.layers[0](x), expected, err_msg=name)
        predicted = trepak.allgather(model.predict(x, verbose=0)[None]).numpy()
        assert all(one.tobytes() == predicted[0].tobytes() for one in predicted), name


@case
def layers_that_were_traced_before() -> Any:
    layer = adapted(keras.layers.StringLookup(), ["a", "b"], ["b", "a"])
    layers = [layer, keras.layers.Embedding(5, 3), keras.layers.Flatten()]
    keras.utils.set_random_seed(0)
    model = keras.Sequential([keras.Input((1,), dtype="string"), *layers])
    model.compile(hvd.DistributedOptimizer(SGD(0.1)), "mse")
    x, y = tf.constant([["a"], ["b"]]), np.array([[1.0, 0, 0], [0, 1, 0]])
    before = model.predict(x, verbose=0)
    callbacks = [hvd.callbacks.BroadcastGlobalVariablesCallback(0)]
    model.fit(x, y, verbose=0, callbacks=callbacks)
    assert not np.array_equal(model.predict(x, verbose=0), before)
    trepak.compare_ranks(model)
    seen = trepak.allgather(model.predict(x, verbose=0)[None]).numpy()
    assert all(one.tobytes() == seen[0].tobytes() for one in seen)


@case
def variables_of_a_first_batch_that_nobody_broadcasts() -> Any:
    keras.utils.set_random_seed(hvd.rank())
    model = keras.Sequential([keras.layers.Dense(3)])
    model.compile(hvd.DistributedOptimizer(SGD(0.1)), "mse")
    if hvd.size() > 1:
        x, y = np.ones((16, 2)), np.ones((16, 3))
        fails(
            ValueError, lambda: model.fit(x, y, batch_size=8, verbose=0), "after a step", "rank 0"
        )


@case
def models_that_are_built_in_their_first_batch() -> Any:
    text = adapted(
        keras.layers.TextVectorization(9, output_sequence_length=2), ["a b c"], ["c b a d"]
    )
    keras.utils.set_random_seed(hvd.rank())
    built = keras.layers.Dense(4)
    built.build((None, 8))
    layers = [text, keras.layers.Embedding(9, 4), keras.layers.Flatten(), built]
    model = keras.Sequential([*layers, keras.layers.Dense(3)])
    model.compile(hvd.DistributedOptimizer(SGD(0.1 + hvd.rank())), "mse")
    x, y = tf.constant([["a b"], ["c d"]] * 8), np.ones((16, 3))
    callbacks = [hvd.callbacks.BroadcastGlobalVariablesCallback(0)]
    model.fit(x, y, batch_size=8, verbose=0, callbacks=callbacks)
    seen = trepak.allgather(model.predict(x, verbose=0)[None]).numpy()
    assert all(one.tobytes() == seen[0].tobytes() for one in seen)

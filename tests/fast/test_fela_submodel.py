"""Fela's sub-models: one behind another, they compute what the model does, to the last bits."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any, NamedTuple

import fela_models
import keras
import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st

from trepak.tf_plugins.fela.graph import graph_of
from trepak.tf_plugins.fela.partition import Partition, partition

_float64 = pytest.fixture(autouse=True)(fela_models.in_float64)


class Step(NamedTuple):
    """What a training step computes, flat."""

    outputs: list[Any]
    loss: Any
    grads: dict[str, Any]
    state: dict[str, Any]


def targets_loss(outputs: Sequence[Any]) -> Any:
    """A loss that has another gradient for every output and sample."""
    total = tf.zeros([], keras.config.floatx())
    for i, output in enumerate(outputs):
        rows = tf.cast(tf.range(tf.shape(output)[0]) + 1 + i, output.dtype)
        shape = [-1, *[1] * (len(output.shape) - 1)]
        total += tf.cast(tf.reduce_mean(tf.reshape(rows, shape) * output**2), total.dtype)
    return total


def named(variables: Sequence[Any], values: Sequence[Any]) -> dict[str, Any]:
    return {v.path: np.asarray(x) for v, x in zip(variables, values, strict=True)}


def step_of(parts: Partition, inputs: Sequence[Any], **draws: Any) -> Step:
    """A step of the sub-models, one behind another, on copies of the variables' values."""
    trainable = [[tf.identity(v.value) for v in sub.trainable] for sub in parts.sub_models]
    state: dict[str, Any] = {}
    with tf.GradientTape() as tape:
        tape.watch(trainable)
        crossing, loss = list(inputs), tf.zeros([], keras.config.floatx())
        for sub, values in zip(parts.sub_models, trainable, strict=True):
            held = [tf.identity(v.value) for v in sub.state]
            done = sub.forward(values, held, crossing, **draws)
            crossing, loss = done.outputs, loss + done.loss + sub.regularization(values)
            state |= named(sub.state, done.state)
        loss += targets_loss(crossing)
    grads = tape.gradient(loss, trainable)
    dense = [[tf.convert_to_tensor(g) for g in of_one] for of_one in grads]
    variables = [v for sub in parts.sub_models for v in sub.trainable]
    return Step(crossing, loss, named(variables, [g for of_one in dense for g in of_one]), state)


def step_of_model(model: Any, inputs: Sequence[Any]) -> Step:
    """A step of the model itself, which changes its state."""
    with tf.GradientTape() as tape:
        called = model(fela_models.as_model_takes(model, list(inputs)), training=True)
        outputs = keras.tree.flatten(called)
        losses = [tf.cast(one, keras.config.floatx()) for one in model.losses]
        loss = targets_loss(outputs) + (tf.add_n(losses) if losses else 0)
    variables = model.trainable_variables
    grads = [tf.convert_to_tensor(g) for g in tape.gradient(loss, [v.value for v in variables])]
    others = model.non_trainable_variables
    return Step(outputs, loss, named(variables, grads), named(others, [v.value for v in others]))


def assert_same(ours: Step, theirs: Step, tolerance: float = 1e-12) -> None:
    def close(a: Any, b: Any, what: str) -> None:
        np.testing.assert_allclose(a, b, rtol=tolerance, atol=tolerance, err_msg=what)

    assert len(ours.outputs) == len(theirs.outputs)
    for i, (a, b) in enumerate(zip(ours.outputs, theirs.outputs, strict=True)):
        assert a.dtype == b.dtype
        close(tf.cast(a, tf.float64), tf.cast(b, tf.float64), f"output {i}")
    # Float32's rounding, for regularizers that are added up in another order.
    eps = np.finfo(keras.config.floatx()).eps
    np.testing.assert_allclose(ours.loss, theirs.loss, rtol=4 * eps)
    for mine, other in ((ours.grads, theirs.grads), (ours.state, theirs.state)):
        assert mine.keys() == other.keys()
        for path, value in other.items():
            close(mine[path], value, path)


def cut_names(model: Any) -> list[str]:
    return list(dict.fromkeys(n.operation.name for n in graph_of(model).nodes))[:-1]


@functools.cache
def made(case: str) -> fela_models.Case:
    return fela_models.CASES[case](5)


@pytest.mark.parametrize("case", fela_models.CASES)
def test_sub_models_compute_what_the_model_does(case: str) -> None:
    model, inputs = made(case)
    begun = [v.value.numpy() for v in model.variables]

    @settings(max_examples=6, deadline=None)
    @given(st.sets(st.sampled_from(cut_names(model))))
    def check(cuts: set[str]) -> None:
        for variable, value in zip(model.variables, begun, strict=True):
            variable.assign(value)
        parts = partition(model, sorted(cuts))
        assert len(parts.sub_models) == len(set(parts.cuts)) + 1
        x = fela_models.as_model_takes(model, inputs)
        ours = step_of(parts, parts.flat(x))
        keras.tree.assert_same_structure(parts.packed(ours.outputs), model(x))
        for variable, value in zip(model.variables, begun, strict=True):
            np.testing.assert_array_equal(variable.value, value)  # not ours to change
        assert {one.dtype for one in ours.outputs} == {tf.float64}
        assert_same(ours, step_of_model(model, inputs))

    check()


@pytest.mark.parametrize("policy", ["mixed_float16", "mixed_bfloat16", "float32"])
@pytest.mark.parametrize("case", ["vgg_like", "residual", "regularized", "text"])
def test_dtype_policies_cast_as_the_model_does(case: str, policy: str) -> None:
    keras.config.set_floatx("float32")
    keras.config.set_dtype_policy(policy)
    model, inputs = fela_models.CASES[case](5)
    names = cut_names(model)
    parts = partition(model, names[1::2])
    crossing = {one.dtype for sub in parts.sub_models for one in sub.outputs}
    assert model.compute_dtype in crossing
    ours = step_of(parts, inputs)
    assert_same(ours, step_of_model(model, inputs), tolerance=0)  # the same kernels, in turn


def test_in_a_graph_of_its_own_for_each_sub_model() -> None:
    """As the token loop runs them: state and values are arguments, batches have any size."""
    model, inputs = fela_models.CASES["residual"](6)
    parts = partition(model, cut_names(model)[2::4])
    values = [np.asarray(inputs[0])[:4]]
    for sub in parts.sub_models:
        signature = [tf.TensorSpec([None, *one.shape], one.dtype) for one in sub.inputs]
        assert all(None not in one.shape for one in sub.inputs)

        @tf.function(input_signature=signature)
        def run(*inputs: Any, sub: Any = sub) -> Any:
            held = [[tf.identity(v.value) for v in side] for side in (sub.trainable, sub.state)]
            return tuple(sub.forward(*held, inputs).outputs)

        values = list(run(*values))
        assert run.experimental_get_tracing_count() == 1
        assert [v.dtype.name for v in values] == [one.dtype for one in sub.outputs]
        assert [tuple(v.shape) for v in values] == [(4, *one.shape) for one in sub.outputs]
    np.testing.assert_allclose(values[0], model(inputs[0][:4], training=True), rtol=1e-12)


def test_masks_cross_cuts() -> None:
    model, inputs = fela_models.CASES["text"](5)
    embedding = cut_names(model)[0]
    first, last = partition(model, [embedding]).sub_models
    # Layers that take a mask as an argument have it made of the words, which cross for them.
    assert [one.name for one in last.inputs][1:] == [embedding, f"the mask of {embedding}"]
    assert [one.dtype for one in last.inputs] == ["int32", "float64", "bool"]
    made = first.forward(first.trainable, first.state, inputs).outputs
    np.testing.assert_array_equal(made[2], inputs[0] != 0)
    others = [tf.ones_like(made[0]), made[1], tf.ones_like(made[2])]  # as if no word were masked
    with_mask = last.forward(last.trainable, last.state, made).outputs
    without = last.forward(last.trainable, last.state, others).outputs
    assert np.abs(with_mask[0] - without[0]).max() > 1e-3
    # Keras' losses leave out what is masked.
    np.testing.assert_array_equal(with_mask[1]._keras_mask, inputs[0] != 0)


def test_masks_reach_the_outputs_from_which_losses_take_them() -> None:
    words = keras.Input((7,), dtype="int32")
    x = keras.layers.Embedding(9, 3, mask_zero=True, name="embedding")(words)
    first, last = partition(keras.Model(words, keras.layers.Dense(2)(x)), ["embedding"]).sub_models
    assert [one.name for one in last.inputs] == ["embedding", "the mask of embedding"]
    drawn = np.array([[1, 2, 0, 3, 0, 0, 0]])
    made = first.forward(first.trainable, first.state, [drawn]).outputs
    (out,) = last.forward(last.trainable, last.state, [tf.identity(one) for one in made]).outputs
    np.testing.assert_array_equal(out._keras_mask, drawn != 0)


def test_nothing_crosses_twice() -> None:
    model, _ = made("text")
    shared = 0
    for name in cut_names(model):
        first, _ = partition(model, [name]).sub_models
        assert len({id(one.tensor) for one in first.outputs}) == len(first.outputs)
        shared += len(first.outputs)
    assert shared > len(cut_names(model))


def test_what_only_shows_when_it_runs_is_refused() -> None:
    words = keras.Input((7,), dtype="int32")
    inner = keras.Sequential([keras.Input((7,)), keras.layers.Embedding(9, 3, mask_zero=True)])
    inner.name = "inner"
    out = keras.layers.Dense(2)(keras.layers.GlobalAveragePooling1D()(inner(words)))
    first, _ = partition(keras.Model(words, out), ["inner"]).sub_models
    with pytest.raises(ValueError, match="output of 'inner' gets a mask inside of it.*elsewhere"):
        first.forward(first.trainable, first.state, [np.zeros((2, 7))])


def test_regularizers_count_once_and_activities_for_each_sample() -> None:
    model, inputs = fela_models.CASES["regularized"](6)
    (sub,) = partition(model, []).sub_models
    model(inputs[0], training=True)
    whole = sub.forward(sub.trainable, sub.state, inputs).loss
    parts = [sub.forward(sub.trainable, sub.state, [x]).loss for x in np.split(inputs[0], [2])]
    np.testing.assert_allclose(whole, (2 * parts[0] + 4 * parts[1]) / 6, rtol=1e-12)
    weights = sub.regularization(sub.trainable)
    assert weights > 0.01
    np.testing.assert_allclose(whole + weights, sum(model.losses), rtol=1e-12)


def test_the_wrong_number_of_values_is_explained() -> None:
    model, inputs = fela_models.CASES["vgg_like"](2)
    first, _ = partition(model, cut_names(model)[:1]).sub_models
    with pytest.raises(ValueError, match="begins with 'conv_1' has 2 trainable .*got 1, 0 and 1"):
        first.forward(first.trainable[:1], [], inputs)
    with pytest.raises(ValueError, match="and 1 inputs; got 2, 0 and 2"):
        first.forward(first.trainable, [], inputs * 2)

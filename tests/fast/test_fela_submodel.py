"""Fela's sub-models: one behind another, they compute what the model does, to the last bits."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence
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


@pytest.fixture(autouse=True)
def _float64() -> Iterator[None]:
    before = keras.config.floatx()
    keras.config.set_floatx("float64")
    yield
    keras.config.set_floatx(before)


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
    close(ours.loss, theirs.loss, "loss")
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
        ours = step_of(parts, inputs)
        for variable, value in zip(model.variables, begun, strict=True):
            np.testing.assert_array_equal(variable.value, value)  # not ours to change
        assert_same(ours, step_of_model(model, inputs))

    check()

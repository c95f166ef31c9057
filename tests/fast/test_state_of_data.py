"""A state with data takes the model from what the data kept, or has it as it is."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

from trepak.tf_plugins.model import saved_values
from trepak.tf_plugins.model.elastic import KerasState, MovingData
from trepak.tf_plugins.model.member_state import MemberState


class _Data(MovingData):
    """Goes on from now: a rank that had handed all on died before the commit."""

    def join(self, state: MemberState, save: Callable[[], Any]) -> Any:
        return save()

    def begin(self) -> None:
        raise AssertionError

    def commit_soon(self) -> None:
        raise AssertionError


@pytest.mark.parametrize(
    ("attributes", "match"),
    [
        ({"batch": 0}, "leave out batch="),
        ({"best": np.zeros(2)}, r"best= is array"),
        ({"by_epoch": {1: 2.0}}, r"by_epoch= is \{1: 2.0\}"),
        ({"pair": (1, 2)}, r"pair= is \(1, 2\)"),
    ],
)
def test_what_data_can_not_keep_is_refused(attributes: dict[str, Any], match: str) -> None:
    model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])
    model.compile("sgd", "mse")
    with pytest.raises(ValueError, match=match):
        KerasState(model, data=_Data(), **attributes)
    with pytest.raises(TypeError, match="data= takes a trepak.chicle.ChunkedDataset"):
        KerasState(model, data=np.zeros(3))


def test_a_failure_leaves_the_model_to_the_roll() -> None:
    """`restore` comes before the roll, which may go on from now: then the model of now counts."""
    model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])
    model.compile(keras.optimizers.SGD(0.1), "mse")
    state = KerasState(model, data=_Data(), epoch=0)
    now = [weights + 1 for weights in model.get_weights()]
    model.set_weights(now)
    state.epoch = 3
    state.restore()
    state.sync()
    for value, wanted in zip(model.get_weights(), now, strict=True):
        np.testing.assert_array_equal(value, wanted)
    assert state.epoch == 3


def test_an_attribute_that_was_changed_to_what_can_not_be_kept_is_named() -> None:
    model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])
    model.compile("sgd", "mse")
    state = KerasState(model, data=_Data(), losses=[float("nan")], name=None)
    state.sync()
    assert str(state.losses) == "[nan]" and state.name is None
    state.losses = np.zeros(2)
    with pytest.raises(ValueError, match=r"losses= is array.* \(rank 0\)"):
        state.sync()


@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "float64", "int32"])
def test_variables_of_any_dtype_come_back(dtype: str) -> None:
    values = tf.reshape(tf.cast(tf.range(6), dtype), [2, 3])
    ours, theirs = tf.Variable(values), tf.Variable(tf.zeros_like(values))
    saved = saved_values.packed([ours], {"epoch": 3})
    assert saved_values.unpacked(saved, [theirs]) == {"epoch": 3}
    tf.debugging.assert_equal(theirs, ours)
    for others, match in (
        ([theirs, ours], "variable 1 is .*, and theirs missing"),
        ([], f"variable 0 is missing, and theirs {dtype} .2, 3."),
        ([tf.Variable(tf.transpose(values))], "variable 0 is .*3, 2.*, and theirs"),
    ):
        with pytest.raises(ValueError, match=match):
            saved_values.unpacked(saved, others)


def test_variables_of_text_are_refused() -> None:
    with pytest.raises(ValueError, match="is of text"):
        saved_values.packed([tf.Variable("a")], {})

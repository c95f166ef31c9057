"""A state with data takes the model from what the data kept, or has it as it is."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import keras
import numpy as np

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

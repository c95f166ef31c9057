"""Sub-models on tokens of any samples: an iteration's gradients are those of the whole batch."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import fela_models
import keras
import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st

from trepak.tf_plugins.fela.graph import graph_of
from trepak.tf_plugins.fela.partition import Partition, partition
from trepak.tf_plugins.fela.submodel import SubModel

BATCH = 12
Token = Sequence[int]  # the numbers of its samples


@pytest.fixture(autouse=True)
def _float64() -> Iterator[None]:
    before = keras.config.floatx(), keras.config.dtype_policy()
    keras.config.set_floatx("float64")
    keras.config.set_dtype_policy("float64")
    yield
    keras.config.set_floatx(before[0])
    keras.config.set_dtype_policy(before[1])


class Level:
    """A sub-model's tokens: forward, and backward with the gradients of what they have made."""

    def __init__(self, sub: SubModel, tokens: Sequence[Token]) -> None:
        self.sub, self.tokens = sub, [np.array(token) for token in tokens]
        self.values = [tf.identity(v.value) for v in sub.trainable]
        self.done: list[Any] = []

    def forward(self, inputs: Sequence[Any]) -> list[Any]:
        """Takes and returns tensors of all samples, in their order."""
        state = [tf.identity(v.value) for v in self.sub.state]
        for token in self.tokens:
            mine = [tf.gather(x, token) for x in inputs]
            with tf.GradientTape() as tape:
                tape.watch([self.values, mine])
                done = self.sub.forward(self.values, state, mine, tf.constant(token), 3)
                loss = done.loss * len(token) / BATCH
            self.done.append((tape, mine, done.outputs, loss))
        order = np.argsort(np.concatenate(self.tokens))
        made = zip(*(outputs for _, _, outputs, _ in self.done), strict=True)
        return [tf.gather(tf.concat(pieces, 0), order) for pieces in made]

    def backward(self, upstream: Sequence[Any]) -> tuple[list[Any], list[Any]]:
        """Returns the gradients of the inputs, of all samples, and those of the variables."""
        order = np.argsort(np.concatenate(self.tokens))
        pieces, grads = [], [tf.zeros_like(v) for v in self.values]
        for token, (tape, mine, outputs, loss) in zip(self.tokens, self.done, strict=True):
            found = tape.gradient(
                [*outputs, loss],
                [mine, self.values],
                output_gradients=[*(tf.gather(g, token) for g in upstream), tf.ones_like(loss)],
                unconnected_gradients="zero",
            )
            pieces.append(found[0])
            grads = [a + b for a, b in zip(grads, found[1], strict=True)]
        back = [tf.gather(tf.concat(of_one, 0), order) for of_one in zip(*pieces, strict=True)]
        return back, grads


def iteration(parts: Partition, inputs: Sequence[Any], tokens: Any) -> dict[str, Any]:
    """Returns the gradients of all variables, of a mean over samples of a function of each."""
    levels = [Level(sub, of_one) for sub, of_one in zip(parts.sub_models, tokens, strict=True)]
    crossing = [tf.constant(x) for x in inputs]
    for level in levels:
        crossing = level.forward(crossing)
    upstream = [2 * out * (np.arange(BATCH)[:, None] + 1) / BATCH for out in crossing]
    found = {}
    for level in reversed(levels):
        upstream, grads = level.backward(upstream)
        found |= {v.path: g for v, g in zip(level.sub.trainable, grads, strict=True)}
    return found


def test_gradients_do_not_depend_on_cuts_and_tokens() -> None:
    model, inputs = fela_models.dropped(BATCH)
    everyone = range(BATCH)
    whole = iteration(partition(model, []), inputs, [[everyone]])
    assert len(whole) == len(model.trainable_variables)
    names = [node.operation.name for node in graph_of(model).nodes][:-1]

    @settings(max_examples=15, deadline=None)
    @given(st.data())
    def check(data: Any) -> None:
        cuts = data.draw(st.lists(st.sampled_from(names), max_size=3, unique=True))
        parts = partition(model, cuts)
        tokens = []
        for _ in parts.sub_models:
            order = data.draw(st.permutations(everyone))
            at = data.draw(st.sets(st.integers(1, BATCH - 1), max_size=4))
            tokens.append(np.split(np.array(order), sorted(at)))
        found = iteration(parts, inputs, tokens)
        for path, value in whole.items():
            np.testing.assert_allclose(found[path], value, rtol=1e-9, atol=1e-12, err_msg=path)

    check()

"""Sub-models on tokens of any samples: an iteration's gradients are those of the whole batch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import fela_models
import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st

from trepak.tf_plugins.fela.graph import graph_of
from trepak.tf_plugins.fela.partition import Partition, partition
from trepak.tf_plugins.fela.token_trainer import TokenTrainer

BATCH = 12


_float64 = pytest.fixture(autouse=True)(fela_models.in_float64)


def loss(outputs: Sequence[Any], labels: Sequence[Any]) -> Any:
    """Returns a mean over samples: the labels say how much each counts."""
    return tf.add_n([tf.reduce_mean(labels[0][:, None] * out**2) * out.shape[1] for out in outputs])


def rows(tensors: Sequence[Any], ids: Any) -> list[Any]:
    return [tf.gather(one, ids) for one in tensors]


def in_order(tokens: Sequence[Any], made: Sequence[Sequence[Any]]) -> list[Any]:
    """Returns what tokens have made as tensors of all samples."""
    order = np.argsort(np.concatenate(tokens))
    return [tf.gather(tf.concat(pieces, 0), order) for pieces in zip(*made, strict=True)]


def iteration(parts: Partition, inputs: Sequence[Any], tokens: Any) -> dict[str, Any]:
    """Returns the gradients of all variables, of the mean over samples, and trains by tokens."""
    trainer = TokenTrainer(parts, loss, lambda one: one, eager=True)
    now = trainer.begin(3)
    last = len(parts.sub_models) - 1
    crossing = [tf.constant(x) for x in inputs]
    for i, level in enumerate(tokens[:-1]):
        made = [
            trainer.forward(now, i, number, rows(crossing, ids), tf.constant(ids), {})[0]
            for number, ids in enumerate(level, last * BATCH * i)
        ]
        crossing = in_order(level, made)
    made = [
        trainer.last(now, rows(crossing, ids), [tf.constant(ids + 1.0)], tf.constant(ids))[0]
        for ids in tokens[-1]
    ]
    for i, level in reversed(list(enumerate(tokens[:-1]))):
        upstream = in_order(tokens[i + 1], made)
        made = [
            trainer.backward(now, i, number, rows(upstream, ids))[0]
            for number, ids in enumerate(level, last * BATCH * i)
        ]
    return {
        v.path: gradient / BATCH
        for sub, sums in zip(parts.sub_models, now.sums, strict=True)
        for v, gradient in zip(sub.trainable, sums.gradients, strict=True)
    }


def test_gradients_do_not_depend_on_cuts_and_tokens() -> None:
    model, inputs = fela_models.dropped(BATCH)
    everyone = np.arange(BATCH)
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
            order = data.draw(st.permutations(range(BATCH)))
            at = data.draw(st.sets(st.integers(1, BATCH - 1), max_size=4))
            tokens.append(np.split(np.array(order), sorted(at)))
        found = iteration(parts, inputs, tokens)
        for path, value in whole.items():
            np.testing.assert_allclose(found[path], value, rtol=1e-9, atol=1e-12, err_msg=path)

    check()

"""Draws of samples: each as often as any other, wherever its chunk is."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

from trepak.tf_plugins.chicle.chunk_store import ChunkStore
from trepak.tf_plugins.chicle.cutting import Cutting
from trepak.tf_plugins.chicle.drawing import DRAWN, Draws

FIELDS = ("x", "y")


def stores(tasks: int) -> list[ChunkStore]:
    """Returns stores of 100 samples in chunks of ten, the first task's with more of them."""
    x = np.arange(100)
    cutting = Cutting({"x": np.column_stack([x, x]), "y": x}, [DRAWN], 1430)
    assert set(cutting.sizes) == {10}, cutting.sizes
    made = [ChunkStore(checked=True) for _ in range(tasks)]
    for chunk in cutting.chunks():
        made[chunk.id % 7 % tasks].add(chunk)
    return made


def test_a_pass_has_each_sample_once_though_its_chunk_moves() -> None:
    one, other = stores(2)
    draws = [Draws(store, np.random.default_rng(seed)) for seed, store in enumerate((one, other))]
    seen: list[int] = []
    while len(seen) < 100:
        for store, draw in zip((one, other), draws, strict=True):
            left = sum(int((chunk.view(DRAWN.name) == 0).sum()) for chunk in store.chunks())
            with store.iteration():
                x, y = draw.draw(min(left, 7), FIELDS)
            assert np.shape(x)[0] == min(left, 7) and (not left or (x[:, 0] == y).all())
            seen += y.tolist()
        other.add(one.take(one.ids[0]))
        one.add(other.take(other.ids[-1]))
    assert len(set(seen)) == 100
    assert seen[:7] != sorted(seen[:7])
    with one.iteration():
        again = draws[0].draw(one.samples + 5, FIELDS)[1]
    assert len(set(again)) == one.samples


def test_draws_take_what_was_drawn_least() -> None:
    (store,) = stores(1)
    draw = Draws(store, np.random.default_rng(0))
    with store.iteration():
        for chunk in store.chunks()[:4]:
            store.state(chunk, DRAWN.name)[:] = 3
        assert set(draw.draw(60, FIELDS)[1]) == set(range(40, 100))


def test_draws_are_the_tasks_and_may_be_none() -> None:
    (store,) = stores(1)
    with pytest.raises(tf.errors.FailedPreconditionError, match="the scheduler owns"):
        Draws(store, np.random.default_rng(0)).draw(1, FIELDS)
    empty = ChunkStore()
    with empty.iteration():
        x, y = Draws(empty, np.random.default_rng(0)).draw(5, FIELDS)
    assert len(x) == len(y) == 0

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
    draws = [
        Draws(store, FIELDS, np.random.default_rng(seed)) for seed, store in enumerate((one, other))
    ]
    seen: list[int] = []
    while len(seen) < 100:
        for store, draw in zip((one, other), draws, strict=True):
            left = sum(int((chunk.view(DRAWN.name) == 0).sum()) for chunk in store.chunks())
            with store.iteration():
                draw.begin()
                assert draw.undrawn == left
                x, y = draw.draw(min(left, 7))
            assert np.shape(x)[0] == min(left, 7) and (not left or (x[:, 0] == y).all())
            seen += y.tolist()
        other.add(one.take(one.ids[0]))
        one.add(other.take(other.ids[-1]))
    assert len(set(seen)) == 100
    assert seen[:7] != sorted(seen[:7])
    with one.iteration():
        draws[0].begin()
        again = draws[0].draw(one.samples + 5)[1]
    assert len(set(again)) == one.samples


def test_draws_take_what_was_drawn_least() -> None:
    (store,) = stores(1)
    draw = Draws(store, FIELDS, np.random.default_rng(0))
    with store.iteration():
        for chunk in store.chunks()[:4]:
            store.state(chunk, DRAWN.name)[:] = 3
        draw.begin()
        assert set(draw.draw(60)[1]) == set(range(40, 100))
        draw.begin(anew=True)
        assert draw.undrawn == 100 and set(draw.draw(100)[1]) == set(range(100))


def test_draws_are_the_tasks_and_may_be_none() -> None:
    (store,) = stores(1)
    draw = Draws(store, FIELDS, np.random.default_rng(0))
    with store.iteration():
        draw.begin()
    for act in (lambda: draw.draw(1), lambda: draw.begin(anew=True)):
        with pytest.raises(tf.errors.FailedPreconditionError, match="the scheduler owns"):
            act()
    empty = ChunkStore()
    none = Draws(empty, FIELDS, np.random.default_rng(0))
    with empty.iteration():
        none.begin()
        x, y = none.draw(5)
    assert len(x) == len(y) == 0

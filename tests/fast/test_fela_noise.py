"""Dropout in Fela's sub-models: a sample's numbers are the same in any token, and random."""

from __future__ import annotations

import math
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st

from trepak.models import counter_random
from trepak.tf_plugins.fela.partition import partition
from trepak.tf_plugins.fela.sample_noise import Draws
from trepak.tf_plugins.fela.submodel import SubModel

L = keras.layers
FIVE_SIGMA = 5  # about one in two million tests would fail by chance, if numbers were new each time


def sub_model(*layers: Any, shape: Any = (50,)) -> SubModel:
    (only,) = partition(keras.Sequential([keras.Input(shape), *layers]), []).sub_models
    return only


def run(sub: SubModel, ids: Any, iteration: int = 0, value: Any = None) -> np.ndarray:
    shape = [len(ids), *sub.inputs[0].shape]
    inputs = np.ones(shape, "float32") if value is None else value
    done = sub.forward(
        [v.value for v in sub.trainable],
        [v.value for v in sub.state],
        [inputs],
        tf.constant(ids, tf.int64),
        tf.constant(iteration, tf.int64),
    )
    return done.outputs[0].numpy()


def test_numbers_are_those_of_the_published_generator() -> None:
    layer, ids = L.Dropout(0.5, seed=7), np.array([0, 5, 10**12])
    draws = Draws(tf.constant(ids), tf.constant(41, tf.int64))
    draws.bits(layer, 3, 4)
    state = np.array([7], np.uint64)
    for word in (3, 1, 41):  # the second call
        state = counter_random.bits(state, np.array([word]))
    streams = counter_random.bits(state, ids)[:, None]
    np.testing.assert_array_equal(
        draws.bits(layer, 3, 4).numpy(), counter_random.bits(streams, np.arange(4))
    )


def assert_share(kept: np.ndarray, share: float) -> None:
    """Asserts that so many are kept as of independent ones are, but for one time in millions."""
    bound = FIVE_SIGMA * math.sqrt(share * (1 - share) / kept.size)
    assert abs(kept.mean() - share) < bound


@pytest.mark.parametrize("rate", [0.1, 0.5, 0.9])
def test_share_and_scale_of_what_is_kept(rate: float) -> None:
    out = run(sub_model(L.Dropout(rate, seed=1), shape=(2000,)), range(100))
    assert_share(out != 0, 1 - rate)
    assert set(np.unique(out)) == {np.float32(0), np.float32(1) * np.float32(1 / (1 - rate))}
    for axis in (0, 1):  # nor does one sample, or one element, get more than it should
        shares = (out != 0).mean(axis)
        many = FIVE_SIGMA * math.sqrt(rate * (1 - rate) / out.shape[axis])
        assert abs(shares - (1 - rate)).max() < many


def test_samples_elements_iterations_layers_and_seeds_are_independent() -> None:
    def kept(iteration: int = 0, ids: Any = range(200), seed: int = 1) -> np.ndarray:
        return run(sub_model(L.Dropout(0.5, seed=seed)), ids, iteration) != 0

    x = keras.Input((50,))
    layers = [L.Dropout(0.5, seed=1), L.Dropout(0.5, seed=1)]
    both = L.Concatenate()([layers[0](x), layers[1](x), layers[0](x)])
    (sub,) = partition(keras.Model(x, both), []).sub_models
    first, second, again = np.split(run(sub, range(200)) != 0, 3, axis=1)
    assert_share(first == second, 0.5)  # of one seed, in two places
    assert_share(first == again, 0.5)  # two calls
    assert_share(first[1:] == first[:-1], 0.5)  # samples
    assert_share(first[:, 1:] == first[:, :-1], 0.5)  # elements
    assert_share(first[1:, 1:] == first[:-1, :-1], 0.5)
    assert_share(kept() == kept(iteration=1), 0.5)
    assert_share(kept() == kept(iteration=2**32), 0.5)
    assert_share(kept() == kept(ids=range(2**32, 2**32 + 200)), 0.5)
    assert_share(kept() == kept(seed=2), 0.5)
    np.testing.assert_array_equal(kept(), kept())


LAYERS = {
    "dropout": (lambda: L.Dropout(0.4, seed=3), (6, 4)),
    "shape": (lambda: L.Dropout(0.4, noise_shape=(None, 1, 4), seed=3), (6, 4)),
    "spatial 1": (lambda: L.SpatialDropout1D(0.4, seed=3), (6, 4)),
    "spatial 2": (lambda: L.SpatialDropout2D(0.4, seed=3), (3, 2, 4)),
    "spatial first": (
        lambda: L.SpatialDropout2D(0.4, data_format="channels_first", seed=3),
        (4, 2, 3),
    ),
    "spatial 3": (lambda: L.SpatialDropout3D(0.4, seed=3), (2, 3, 2, 4)),
    "gaussian": (lambda: L.GaussianDropout(0.4, seed=3), (6, 4)),
    "noise": (lambda: L.GaussianNoise(0.4, seed=3), (6, 4)),
    "attention": (lambda: Attention(seed=3), (6, 4)),
    "nested": (lambda: keras.Sequential([L.Dense(5), L.Dropout(0.4, seed=3)]), (6, 4)),
}


class Attention(L.MultiHeadAttention):
    """Of one sequence, on itself."""

    def __init__(self, **options: Any) -> None:
        super().__init__(2, 3, dropout=0.4, **options)

    def call(self, x: Any, training: bool = False) -> Any:
        return super().call(x, x, training=training)

    def build(self, shape: Any) -> None:
        super().build(shape, shape)

    def compute_output_spec(self, x: Any, **options: Any) -> Any:
        return keras.KerasTensor(x.shape, x.dtype)


@pytest.mark.parametrize("name", LAYERS)
def test_any_grouping_of_samples_gives_the_same(name: str) -> None:
    make, shape = LAYERS[name]
    layer = make()
    sub = sub_model(layer, shape=shape)
    ids = np.arange(100, 112)
    values = np.random.default_rng(1).normal(size=(12, *shape)).astype("float32")
    whole = run(sub, ids, 5, values)
    assert layer.weights or (whole != values).any()

    @settings(max_examples=8, deadline=None)
    @given(st.permutations(range(12)), st.lists(st.integers(1, 11), max_size=3, unique=True))
    def check(order: list[int], at: list[int]) -> None:
        for token in np.split(np.array(order), sorted(at)):
            part = run(sub, ids[token], 5, values[token])
            # A product of matrices rounds otherwise in another batch; numbers drawn do not.
            exact = not layer.weights
            np.testing.assert_allclose(part, whole[token], rtol=0, atol=0 if exact else 1e-6)

    check()


def test_spatial_dropout_drops_whole_channels() -> None:
    for name in ("shape", "spatial 1", "spatial 2", "spatial 3", "spatial first"):
        make, shape = LAYERS[name]
        out = run(sub_model(make(), shape=shape), range(500)) != 0
        channels = np.moveaxis(out, 1, -1) if name == "spatial first" else out
        flat = channels.reshape(500, -1, 4)
        assert (flat == flat[:, :1]).all()
        assert_share(flat[:, 0], 0.6)


def test_a_mask_for_all_samples() -> None:
    sub = sub_model(L.Dropout(0.5, noise_shape=(1, 50)))
    out = run(sub, range(40))
    assert (out == out[0]).all()
    np.testing.assert_array_equal(run(sub, [7]), out[:1])
    assert (run(sub, range(40), 1) != out).any()
    with pytest.raises(ValueError, match=r"'fixed' has the noise_shape \(2, 50\).* None"):
        run(sub_model(L.Dropout(0.5, noise_shape=(2, 50), name="fixed")), range(2))


def test_normal_numbers() -> None:
    for layer, mean, deviation in (
        (L.GaussianDropout(0.2, seed=1), 1, 0.5),
        (L.GaussianNoise(0.5, seed=1), 1, 0.5),
    ):
        drawn = (
            run(sub_model(layer, shape=(400,)), range(250)).astype("float64") - mean
        ) / deviation
        n = drawn.size
        assert abs(drawn.mean()) < FIVE_SIGMA / math.sqrt(n)
        assert abs(drawn.var() - 1) < FIVE_SIGMA * math.sqrt(2 / n)  # of a normal's square
        assert abs((drawn**4).mean() - 3) < FIVE_SIGMA * math.sqrt(96 / n)  # E x⁸ − (E x⁴)²
        assert_share(drawn < 1, 0.5 * (1 + math.erf(1 / math.sqrt(2))))


def test_layers_are_the_users_again() -> None:
    dropout = L.Dropout(0.5, seed=3)
    sub = sub_model(dropout)
    state = dropout.seed_generator.state.numpy()
    run(sub, range(3))
    assert "call" not in vars(dropout)
    np.testing.assert_array_equal(dropout.seed_generator.state, state)
    with pytest.raises(tf.errors.InvalidArgumentError, match="no batch of them"):
        run(sub, range(3), value=np.ones((4, 50), "float32"))
    assert "call" not in vars(dropout)


def test_threads_that_run_at_once_draw_their_own_numbers() -> None:
    sub = sub_model(L.Dropout(0.5), L.Dropout(0.3))
    wanted = [run(sub, range(4), iteration) for iteration in range(20)]
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(lambda iteration: run(sub, range(4), iteration), range(20)))
    np.testing.assert_array_equal(found, wanted)


def test_what_draws_needs_the_samples_numbers() -> None:
    sub = sub_model(L.Dropout(0.5, name="dropout"))
    state = [v.value for v in sub.state]
    with pytest.raises(ValueError, match="'dropout' draws .* needs sample_ids and iteration"):
        sub.forward([], state, [np.ones((2, 50))])


def test_rates_of_none_and_all() -> None:
    np.testing.assert_array_equal(run(sub_model(L.Dropout(0.0)), [1]), 1)
    np.testing.assert_array_equal(run(sub_model(L.Dropout(1.0)), [1]), 0)


def test_gradients_go_where_values_go() -> None:
    sub = sub_model(L.Dropout(0.5))
    x = tf.random.normal((4, 50))
    with tf.GradientTape() as tape:
        tape.watch(x)
        state = [v.value for v in sub.state]
        out = sub.forward([], state, [x], tf.range(4, dtype=tf.int64), 0).outputs[0]
    np.testing.assert_allclose(tape.gradient(out, x), tf.where(out != 0, 2.0, 0.0))


def test_in_a_graph() -> None:
    sub = sub_model(L.Dropout(0.5))
    state = [v.value for v in sub.state]

    @tf.function(input_signature=[tf.TensorSpec([None, 50]), tf.TensorSpec([None], tf.int64)])
    def step(x: Any, ids: Any) -> Any:
        return sub.forward([], state, [x], ids, tf.constant(9, tf.int64)).outputs[0]

    for ids in ([4, 2, 8], [1]):
        ones = tf.ones((len(ids), 50))
        np.testing.assert_array_equal(step(ones, tf.constant(ids, tf.int64)), run(sub, ids, 9))
    with pytest.raises(tf.errors.InvalidArgumentError, match="no batch of them"):
        step(tf.ones((2, 50)), tf.constant([1], tf.int64))

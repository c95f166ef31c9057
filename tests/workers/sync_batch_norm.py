"""SyncBatchNormalization against NumPy in float64, and against one process on the whole batch."""

from __future__ import annotations

from typing import Any
from unittest import mock

import keras
import numpy as np
import tensorflow as tf
from harness import case
from isolation import LOWER, PROCESS_SETS  # noqa: F401 (which are registered)

import trepak.keras as hvd
from trepak.tf_plugins.model.sync_batch_norm import _local_statistics

EPSILON = 1e-3


def batches(sizes: list[int], mean: float, dtype: str = "float32", seed: int = 5) -> list[Any]:
    """Returns the ranks' batches [size, 3, 2]; values around a mean, with a deviation of 1."""
    rng = np.random.default_rng(seed)
    scale = np.array([1.0, 3.0])
    return [
        (rng.normal(size=(n, 3, 2)) * scale + mean + r).astype(dtype) for r, n in enumerate(sizes)
    ]


def uneven() -> list[int]:
    return [5 + 8 * rank for rank in range(hvd.size())]


def with_an_empty_one() -> list[int]:
    return [6 * rank for rank in range(hvd.size())] if hvd.size() > 1 else [6]


def masks(parts: list[Any]) -> list[Any]:
    rng = np.random.default_rng(6)
    return [rng.random(part.shape[:2]) < 0.7 for part in parts]


def layer(**options: Any) -> Any:
    return hvd.SyncBatchNormalization(momentum=0.5, epsilon=EPSILON, **options)


def true_moments(parts: list[Any], taken: list[Any] | None = None) -> tuple[Any, Any]:
    rows = [
        p.reshape(-1, 2) if taken is None else p[t]
        for p, t in zip(parts, taken or parts, strict=True)
    ]
    rows = np.concatenate(rows).astype("float64")
    return rows.mean(0), rows.var(0)


def true_gradient(parts: list[Any], weights: list[Any]) -> list[Any]:
    """Returns, by rank, the gradient of Σ weights·normalized(x), by the textbook's formula."""
    x = np.concatenate(parts).reshape(-1, 2).astype("float64")
    g = np.concatenate(weights).reshape(-1, 2).astype("float64")
    deviation = np.sqrt(x.var(0) + EPSILON)
    z = (x - x.mean(0)) / deviation
    grad = (g - g.mean(0) - z * (g * z).mean(0)) / deviation
    ends = np.cumsum([len(p) for p in parts])[:-1]
    return np.split(grad.reshape(-1, 3, 2), ends)


def steps(one: Any, **options: Any) -> Any:
    """Returns a graph: the output, and the gradient of a weighted sum of it, for (x, weights)."""

    @tf.function(reduce_retracing=True)
    def forward_and_backward(x: Any, weights: Any) -> Any:
        with tf.GradientTape() as tape:
            tape.watch(x)
            out = one(x, training=True, **options)
            loss = tf.reduce_sum(tf.cast(weights, out.dtype) * out)
        return tf.cast(out, tf.float64), tf.cast(tape.gradient(loss, x), tf.float64)

    return forward_and_backward


def run(one: Any, x: Any, weights: Any, **options: Any) -> list[Any]:
    """Runs a layer once; returns its output and the gradient."""
    return [v.numpy() for v in steps(one, **options)(tf.constant(x), tf.constant(weights))]


def check_against_numpy(one: Any, train: Any, sizes: list[int], mean: float) -> None:
    """A value at a mean m is off by m·2^-24 (2^-53) before anything is computed from it."""
    dtype = one.compute_dtype
    parts, weights = batches(sizes, mean, dtype), batches(sizes, 0.0, dtype, 7)
    one.moving_mean.assign([0.0, 0.0])
    one.moving_variance.assign([1.0, 1.0])
    x, g = (tf.constant(p[hvd.rank()]) for p in (parts, weights))
    out, grad = (v.numpy() for v in train(x, g))
    mu, variance = true_moments(parts)
    step = max(abs(mean), 1.0) * np.finfo(dtype).eps
    rounding = 8 * float(np.finfo(dtype).eps)
    np.testing.assert_allclose(one.moving_mean, mu / 2, rtol=rounding, atol=rounding)
    rounding = max(rounding, 1e-10 if dtype == "float64" else 0)  # the means have 16 digits too
    np.testing.assert_allclose(one.moving_variance, (variance + 1) / 2, rtol=rounding)
    wanted = (parts[hvd.rank()] - mu) / np.sqrt(variance + EPSILON)
    np.testing.assert_allclose(out, wanted, atol=4 * step)
    wanted = true_gradient(parts, weights)[hvd.rank()]
    assert np.abs(wanted).max(initial=0.1) >= 0.1
    np.testing.assert_allclose(grad, wanted, atol=8 * step)


@case
def means_of_any_size() -> Any:
    for dtype in ("float32", "float64"):
        one = layer(dtype=dtype)
        one.build((None, 3, 2))
        train = steps(one)
        for sizes in (uneven(), with_an_empty_one()):
            for mean in (0.0, 1e3, -1e4, 1e6):
                check_against_numpy(one, train, sizes, mean)


@case
def masked_inputs_do_not_count() -> Any:
    parts = batches(uneven(), 1e3)
    taken = masks(parts)
    for part, mask in zip(parts, taken, strict=True):
        part[~mask] = np.nan
    one, mine = layer(), taken[hvd.rank()]
    weights = np.where(mine[..., None], parts[hvd.rank()], 0)
    out, grad = run(one, parts[hvd.rank()], weights, mask=tf.constant(mine))
    mu, variance = true_moments(parts, taken)
    np.testing.assert_allclose(one.moving_mean, mu / 2, rtol=1e-6)
    np.testing.assert_allclose(one.moving_variance, (variance + 1) / 2, rtol=1e-5)
    wanted = (parts[hvd.rank()] - mu) / np.sqrt(variance + EPSILON)
    np.testing.assert_allclose(out[mine], wanted[mine], atol=2e-3)
    assert np.isfinite(out).all() and np.isfinite(grad).all() and np.abs(grad).max() > 0


@case
def masked_inputs_may_be_of_any_size() -> Any:
    x, mask = tf.constant([[[1.0], [-3e38]], [[2.0], [3e38]]]), tf.constant([[1, 0], [1, 0]])
    with tf.GradientTape() as tape:
        tape.watch(x)
        statistics = _local_statistics(x, mask, [0, 1])
    np.testing.assert_allclose(statistics, [[2], [1.5], [0.5]])
    assert np.isfinite(tape.gradient(statistics, x)).all()


@case
def more_samples_than_int32_counts() -> Any:
    def shape(_: Any, out_type: Any = tf.int32) -> Any:
        return tf.constant([70_000, 70_000, 2], out_type)

    with mock.patch.object(tf, "shape", shape):
        count = _local_statistics(tf.ones([1, 1, 2]), None, [0, 1])[0]
    assert count.numpy().tolist() == [70_000**2] * 2


@case
def another_axis() -> Any:
    parts = [np.moveaxis(part, 2, 1) for part in batches(uneven(), 1e3)]
    one = layer(axis=1)
    out, _ = run(one, parts[hvd.rank()], 1.0)
    mu, variance = true_moments([np.moveaxis(part, 1, 2) for part in parts])
    wanted = (parts[hvd.rank()] - mu[:, None]) / np.sqrt(variance + EPSILON)[:, None]
    np.testing.assert_allclose(out, wanted, atol=2e-3)


@case
def half_precision() -> Any:
    """Inputs have 8 or 11 bits; the statistics of what is left of them have all of theirs."""
    for policy, bits in (("mixed_float16", 11), ("mixed_bfloat16", 8)):
        parts = batches(uneven(), 100.0)
        half = [np.asarray(tf.cast(p, policy.removeprefix("mixed_")), "float32") for p in parts]
        one = layer(dtype=policy)
        out, grad = run(one, half[hvd.rank()], 1.0)
        mu, variance = true_moments(half)
        np.testing.assert_allclose(one.moving_mean, mu / 2, rtol=1e-6)
        np.testing.assert_allclose(one.moving_variance, (variance + 1) / 2, rtol=1e-5)
        wanted = (half[hvd.rank()] - mu) / np.sqrt(variance + EPSILON)
        np.testing.assert_allclose(out, wanted, atol=8 * 2.0**-bits)
        assert one.compute_dtype == policy.removeprefix("mixed_")
        assert np.isfinite(grad).all()


@case
def second_derivatives() -> Any:
    """As a gradient penalty has them: those of one process on the whole batch."""
    parts = batches(uneven(), 10.0, "float64")

    def penalty(one: Any, x: Any) -> Any:
        with tf.GradientTape() as outer:
            outer.watch(x)
            with tf.GradientTape() as inner:
                inner.watch(x)
                score = tf.reduce_sum(tf.sin(one(x, training=True)))
            loss = tf.reduce_sum(tf.square(inner.gradient(score, x)))
        return outer.gradient(loss, x).numpy()

    whole = keras.layers.BatchNormalization(epsilon=EPSILON, dtype="float64")
    wanted = np.split(
        penalty(whole, tf.constant(np.concatenate(parts))), np.cumsum([len(p) for p in parts])[:-1]
    )
    got = penalty(layer(dtype="float64"), tf.constant(parts[hvd.rank()]))
    np.testing.assert_allclose(got, wanted[hvd.rank()], rtol=1e-8, atol=1e-10)


@case
def a_process_set_normalizes_by_itself() -> Any:
    if hvd.size() == 1:
        return
    parts = batches(uneven(), 1e3)
    inside = LOWER.included()
    original = layer(process_set=LOWER)
    copy = keras.models.clone_model(keras.Sequential([keras.Input((3, 2)), original])).layers[0]
    for one in (original, copy):
        run(one, parts[hvd.rank()], 1.0)
        mu, _ = true_moments(parts[: LOWER.size()] if inside else [parts[hvd.rank()]])
        np.testing.assert_allclose(one.moving_mean, mu / 2, rtol=1e-6)
    loaded = layer(process_set=[0, 999])
    try:
        loaded(tf.constant(parts[hvd.rank()]), training=True)
    except ValueError as error:
        assert "layer.process_set" in str(error) and "[0, 999]" in str(error)
    else:
        raise AssertionError("an unknown process set was accepted")

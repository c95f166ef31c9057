"""The batches of clicks that models take, whatever data set they come from."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import tensorflow as tf

_AHEAD = 2  # batches that are ready before they are asked for
_AT_ONCE = 2  # batches that are made at a time


def log_counts(counts: Any) -> Any:
    """Returns log(1 + count): it brings heavy-tailed counts into a range that networks learn from.

    Args:
        counts: whole numbers of any shape; those below 0, of which Criteo has a few, count as 0.

    Returns:
        float32, of the same shape.
    """
    # The last bit of TensorFlow's logarithms depends on a number's place in the batch, and a sample
    # must not: in float64 that bit is one which the rounding drops.
    return tf.cast(tf.math.log1p(tf.cast(tf.maximum(counts, 0), tf.float64)), tf.float32)


def batch_of(counts: Any, ids: Mapping[str, Any], labels: Any) -> tuple[dict[str, Any], Any]:
    """Returns a batch of B samples as the models take it.

    Args:
        counts: whole numbers, (B, numerical), or None where there are none.
        ids: whole numbers by categorical feature, (B,) or (B, L).
        labels: 1 for a click and 0 for none, (B,).

    Returns:
        The inputs and the labels, float32 (B, 1). The inputs are a dict: "categorical" holds the
        ids, int32, by feature, and "numerical" the counts as `log_counts` has them, float32
        (B, numerical); it is absent where there are none.
    """
    inputs: dict[str, Any] = {"categorical": {n: tf.cast(x, tf.int32) for n, x in ids.items()}}
    if counts is not None:
        inputs["numerical"] = log_counts(counts)
    return inputs, tf.cast(labels, tf.float32)[:, None]


def prepared(dataset: tf.data.Dataset, make: Any) -> tf.data.Dataset:
    """Returns the dataset of what `make` returns, made in parallel and ahead, in order."""
    options = tf.data.Options()
    # On busy cores its thread can hold up whoever drops an iterator: see docs/configuration.md.
    options.autotune.enabled = False
    made = dataset.map(make, num_parallel_calls=_AT_ONCE, deterministic=True)
    return made.prefetch(_AHEAD).with_options(options)


def check_shard(rank: int, size: int, batch_size: int) -> None:
    """Checks which part of the data a rank asks for.

    Raises:
        ValueError: there is no such rank, or a batch would have no sample.
    """
    if not 0 <= rank < size:
        raise ValueError(f"there is no rank {rank} of {size}: they count from 0.")
    if batch_size < 1:
        raise ValueError(f"a batch has at least 1 sample, got batch_size={batch_size}.")

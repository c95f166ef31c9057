"""Means over ranks that count for as much as each says."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from trepak.horovod_ext import basics, collectives
from trepak.horovod_ext.gradient_groups import grouped


def weighted_means(
    values: Sequence[Any],
    weight: Any,
    name: str,
    process_set: basics.ProcessSet = basics.global_process_set,
) -> list[Any]:
    """Returns Σ weight · value / Σ weight over the ranks, of each value; a collective call.

    Each value is multiplied before it is sent, and the sum is divided: so the sum of the weights
    travels beside the values and not before them, and ranks that have joined, which add zeros, have
    no weight. All ranks get the same bits.

    Args:
        values: tensors of floating-point numbers; of the same dtypes and shapes on all ranks.
        weight: of this rank; a scalar that is not negative, and is positive on one rank at least.
        name: begins the names of the collectives; the same on all ranks.
        process_set: the ranks that take part.

    Returns:
        Tensors of the dtypes of the values. Those of less than 32 bits travel as float32, and are
        rounded once.
    """
    summing: dict[str, Any] = {
        "op": collectives.Sum,
        "ignore_name_scope": True,
        "process_set": process_set,
    }
    weight = tf.cast(weight, tf.float64)
    total = collectives.allreduce(weight, name=f"{name}_weight", **summing)
    wide = [tf.cast(value, _wide(value.dtype)) for value in values]
    means: list[Any] = [None] * len(wide)
    for number, places in enumerate(grouped(None, wide, [value.dtype for value in wide])):
        shares = [wide[place] * tf.cast(weight, wide[place].dtype) for place in places]
        sums = collectives.grouped_allreduce(shares, name=f"{name}_{number}", **summing)
        for place, one in zip(places, sums, strict=True):
            means[place] = tf.cast(one / tf.cast(total, one.dtype), values[place].dtype)
    return means


def _wide(dtype: Any) -> Any:
    return tf.float64 if dtype == tf.float64 else tf.float32

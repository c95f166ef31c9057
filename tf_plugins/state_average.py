"""Averages what training changes without gradients, such as BatchNorm's moving statistics."""

from __future__ import annotations

import zlib
from collections.abc import Iterable
from typing import Any

import numpy as np
import tensorflow as tf

from trepak.horovod_ext import basics, collectives, exchange
from trepak.horovod_ext.variables import key, tf_variable


def average_state(
    model: Any,
    process_set: basics.ProcessSet = basics.global_process_set,
    local_variables: Iterable[Any] = (),
) -> list[str]:
    """Averages a model's non-trainable floating-point weights over the ranks.

    A collective call. Random seeds are never touched, nor are integers; weights that are equal on
    all ranks already (a frozen layer's) keep their very bits. Moving averages are linear in the
    batches seen, so averaging now and then equals averaging in every step.

    Args:
        model: a built Keras model.
        process_set: the ranks that take part.
        local_variables: weights that each rank keeps its own of.

    Returns:
        The paths of the variables that differed.

    Raises:
        HorovodInternalError: a rank has left the job.
    """
    if process_set.size() == 1 or not process_set.included():
        return []
    local = {key(variable) for variable in local_variables}
    floating = [v for v in model.non_trainable_weights if tf.as_dtype(v.dtype).is_floating]
    weights = [v for v in floating if key(v) not in local]
    prints = exchange.gather(
        [zlib.crc32(np.asarray(w).tobytes()) for w in weights],
        "fingerprints of non-trainable weights",
        process_set,
    )
    different = [w for w, *seen in zip(weights, *prints, strict=True) if len(set(seen)) > 1]
    if not different:
        return []
    averaged = [
        collectives.allreduce(_precise(tf_variable(weight)), process_set=process_set)
        for weight in different
    ]
    for weight, value in zip(different, averaged, strict=True):
        weight.assign(tf.cast(value, weight.dtype))
    return [weight.path for weight in different]


def _precise(value: Any) -> Any:
    """Returns half-precision values in float32, so that they lose no bits on the way."""
    return tf.cast(value, tf.float32) if tf.as_dtype(value.dtype).size < 4 else value

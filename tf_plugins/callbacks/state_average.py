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
    """Averages what a model has of floating-point state that no gradient changes.

    A collective call. Random seeds are never touched, nor are integers, nor the weights of frozen
    layers, which must not differ; state that is equal on all ranks keeps its very bits. Moving
    averages are linear in the batches seen, so averaging now and then equals averaging in every
    step.

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
    weights = [v for v in _state_of(model) if key(v) not in local]
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


def ids_of_weights(model: Any) -> set[int]:
    """Returns the ids of variables that only gradients change, frozen and quantized ones too.

    All else that a model has is state, of which ranks may hold their own until it is averaged.
    """
    layers = [model, *model._flatten_layers(include_self=False)]
    quantized = [layer for layer in layers if getattr(layer, "quantization_mode", None)]
    trained = {id(v) for layer in layers for v in layer._trainable_variables}
    return trained | {id(v) for layer in quantized for v in layer._non_trainable_variables}


def _state_of(model: Any) -> list[Any]:
    weights = ids_of_weights(model)
    state = [v for v in model.non_trainable_weights if id(v) not in weights]
    return [v for v in state if tf.as_dtype(v.dtype).is_floating]


def _precise(value: Any) -> Any:
    """Returns half-precision values in float32, so that they lose no bits on the way."""
    return tf.cast(value, tf.float32) if tf.as_dtype(value.dtype).size < 4 else value

"""Tells a model's optimizers how many samples each step is of, where they ask."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from trepak.tf_plugins.model.distributed_models import counting_steps
from trepak.tf_plugins.model.model_hooks import ModelHook, attach, attached

_NAME = "samples"


def count_samples(model: Any) -> None:
    """Has each training step of a model tell its optimizers of the samples, if one of them asks.

    To be called before the step is traced. It counts in the step itself: a dataset's batches may
    have been made long before.

    Args:
        model: a Keras model.
    """
    if counting_steps(model) and not attached(model, _NAME):
        attach(model, ModelHook(_NAME, {"train_step": _counting}))


def _counting(model: Any, train_step: Any) -> Any:
    def step(data: Any) -> Any:
        samples = _samples_of(data)
        for one in counting_steps(model):  # of now: the model may be compiled anew
            one.count(samples)
        return train_step(data)

    return step


def _samples_of(data: Any) -> Any:
    """Returns the length of a batch's first tensor, which Keras takes for its size, too."""
    parts = tf.nest.flatten(data)
    first = next((part for part in parts if part is not None), None)
    if isinstance(first, tf.SparseTensor):
        return first.dense_shape[0]
    if isinstance(first, tf.RaggedTensor):
        return first.nrows()
    if first is None or not tf.convert_to_tensor(first).shape.rank:
        return 1  # a step of no batch
    return tf.shape(first)[0]

"""Marks in each step where computing ends and where synchronizing ends.

Nothing is marked unless somebody looks: a monitor, a timeline, or a lab that slows this rank.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from trepak.horovod_ext import unevenness
from trepak.ops import step_probe

_enabled = False


def enable() -> None:
    """Marks steps in what is traced from now on."""
    global _enabled
    _enabled = True


def mark_model(model: Any) -> None:
    """Marks the steps of a Keras model, also if `fit` has traced them without marks before.

    Args:
        model: the model; call it when `fit` has begun.
    """
    enable()
    traced = model.train_function
    if traced is not None and getattr(model, "_trepak_marked", None) is not traced:
        model.make_train_function(force=True)
        model._trepak_marked = model.train_function


def is_enabled() -> bool:
    """Tells whether steps are marked."""
    return _enabled or unevenness.is_wanted()


def mark_ready(grads: Sequence[Any]) -> list[Any]:
    """Marks that the gradients are computed; returns them, ready when this rank shall be.

    Args:
        grads: tensors, IndexedSlices or None.
    """
    return _behind(step_probe.step_ready, grads) if is_enabled() else list(grads)


def mark_done(grads: Sequence[Any]) -> list[Any]:
    """Marks that the gradients are reduced; returns them.

    Args:
        grads: tensors, IndexedSlices or None.
    """
    return _behind(step_probe.step_done, grads) if is_enabled() else list(grads)


def _behind(mark: Any, grads: Sequence[Any]) -> list[Any]:
    """Returns the gradients, there only after an op that comes after all of them."""
    tensors = [getattr(grad, "values", grad) for grad in grads if grad is not None]
    if tf.executing_eagerly():
        mark()
        return list(grads)
    with tf.control_dependencies(tensors):
        marked = mark()
    with tf.control_dependencies([marked]):
        return [grad if grad is None else tf.identity(grad) for grad in grads]

"""`overlap(model)`: has `fit` apply each gradient when it has come, in the next step."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from trepak.tf_plugins.model.flushing import after, flushing_methods
from trepak.tf_plugins.model.model_hooks import ModelHook, attach, attached
from trepak.tf_plugins.optimizer.distributed_optimizer import DistributedMixin

_NAME = "overlap"


def overlap(model: Any) -> Any:
    """Lets transfers of gradients overlap the computing of the next step in `fit`.

    To be called after `model.compile` with a `DistributedOptimizer`. Gradients travel by its
    transport, such as `Geryon`, or in pieces by Horovod's collectives. What is pending is applied
    before evaluation and prediction, at the end of an epoch, before weights are read, saved or set
    by the model's methods, after `train_on_batch`, and after a block of `steps_per_execution`. In
    between, the weights are those of the step before.

    Args:
        model: a compiled Keras model; it is changed in place and returned.

    Raises:
        ValueError: the model is not compiled with such an optimizer, or its ranks do not reduce
            gradients in each step.
    """
    if not isinstance(getattr(model, "optimizer", None), DistributedMixin):
        raise ValueError(
            "overlap() needs a model that is compiled with trepak's DistributedOptimizer: call "
            "model.compile(optimizer=DistributedOptimizer(...)) first."
        )
    if model.optimizer._trepak.step.diverges:
        sync = type(model.optimizer._trepak.sync).__name__
        raise ValueError(
            f"overlap() is for sync=BSP(): with {sync} no gradients wait for the next step. Leave "
            "it out."
        )
    if not attached(model, _NAME):
        methods = {**flushing_methods(_flush, _resume), "train_step": _opening}
        attach(model, ModelHook(_NAME, methods, _flushing_blocks, retraces=True))
    return model


def _opening(model: Any, train_step: Any) -> Any:
    def step(data: Any) -> Any:
        if _is_distributed(model):
            _build(model, data)
            # If there is no further batch, the step must not even begin.
            with tf.control_dependencies(_tensors(data)):
                model.optimizer.begin_step()
        return train_step(data)

    return step


def _is_distributed(model: Any) -> bool:
    """Tells whether a model still has an optimizer to flush: it may be compiled anew."""
    return isinstance(model.optimizer, DistributedMixin)


def _build(model: Any, data: Any) -> None:
    """Builds layers that have seen no data, and the optimizer: a step begins with all weights."""
    if not all(layer.built for layer in model._flatten_layers()):
        model._symbolic_build(data_batch=data)
    model.optimizer.ensure_built(model.trainable_variables)


def _flush(model: Any) -> None:
    if _is_distributed(model):
        model.optimizer.flush()


def _tensors(data: Any) -> list[Any]:
    return [one for one in tf.nest.flatten(data, expand_composites=True) if tf.is_tensor(one)]


def _flushing_blocks(model: Any, plain: Any) -> Any:
    return after(_flush)(model, plain) if model.steps_per_execution > 1 else plain


def _resume(model: Any) -> None:
    if _is_distributed(model):
        model.optimizer._trepak.step.resume()

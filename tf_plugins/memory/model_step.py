"""A training step of a model on zeros: as large, and as long, as one on samples."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


def model_step(model: Any, batch: int) -> Callable[[], Any]:
    """Returns a step of `fit` of a compiled model, on a batch of zeros.

    Targets have an output's shape, or, if its loss is a sparse one, that of its labels.

    Raises:
        ValueError: the model's inputs are not known, or a dimension beside the batch is open.
    """
    import tensorflow as tf

    options = tf.data.Options()
    options.autotune.enabled = False  # no batch is made before its step asks for it
    options.experimental_optimization.apply_default_optimizations = False
    # A batch whose size the graph does not know: all batches share one graph.
    samples = tf.data.Dataset.from_tensors(_sample(model)).repeat().batch(batch)
    samples = samples.with_options(options)
    model.make_train_function()
    iterator = iter(samples)
    return lambda: model.train_function(iterator)


def batch_bytes(model: Any, batch: int) -> int:
    """Returns what a batch of samples and targets takes.

    Raises:
        ValueError: see `model_step`.
    """
    import keras

    return batch * sum(one.numpy().nbytes for one in keras.tree.flatten(_sample(model)))


def _sample(model: Any) -> tuple[Any, Any]:
    """Returns what `fit` would get as x and y, for one sample."""
    import keras

    inputs, outputs = _tensors(model)
    losses = iter(_losses(model, outputs))
    x = keras.tree.map_structure(lambda one: _zeros(one.shape[1:], one.dtype), inputs)
    y = keras.tree.map_structure(lambda one: _target(one, next(losses)), outputs)
    return keras.tree.lists_to_tuples((x, y))  # a dataset takes a list for one tensor


def _tensors(model: Any) -> tuple[Any, Any]:
    import keras

    try:
        if isinstance(model, keras.Sequential):
            return model.inputs[0], model.outputs[0]
        return model.input, model.output
    except (AttributeError, ValueError) as error:
        raise ValueError(
            f"The model {model.name!r} does not say what its inputs are: only functional and "
            "sequential models do, the latter with keras.Input as their first layer."
        ) from error


def _target(output: Any, loss: Any) -> Any:
    shape = output.shape[1:-1] if "sparse" in _name(loss) else output.shape[1:]
    return _zeros(shape, "float32")


def _losses(model: Any, outputs: Any) -> list[Any]:
    """Returns the loss of each output, in their order, as it was given to `compile`."""
    import keras

    if isinstance(model.loss, dict):
        names = sorted(outputs) if isinstance(outputs, dict) else model.output_names
        return [model.loss.get(name) for name in names]
    if isinstance(model.loss, list | tuple):
        return [*model.loss]
    return [model.loss] * len(keras.tree.flatten(outputs))


def _name(loss: Any) -> str:
    return str(getattr(loss, "name", None) or getattr(loss, "__name__", loss)).lower()


def _zeros(shape: tuple[int | None, ...], dtype: str) -> Any:
    import tensorflow as tf

    if None in shape:
        raise ValueError(
            f"The model has an input or output of the shape {shape} beside the batch: only the "
            "batch may be open. Give keras.Input the sizes that are trained with."
        )
    return tf.zeros(shape, dtype)

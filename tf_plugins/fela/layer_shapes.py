"""Which layers have a threshold batch size, and by what shape it is known (Section IV-A)."""

from __future__ import annotations

import json
import math
from typing import Any

import keras

# What neither the arithmetic nor its size depends on.
_IRRELEVANT = ("name", "trainable", "dtype", "seed", "activation", "use_bias")
_OF_NORMALIZATION = ("gamma", "beta", "alpha")


def is_weighted(node: Any) -> bool:
    """Says whether a node calls a layer that the paper counts: one with a kernel, or a table.

    Normalizations have weights too, a few for each channel, and count with the layer before them.
    """
    return bool(_kernels(node.operation))


def is_fully_connected(node: Any) -> bool:
    """Says whether a node calls a fully connected layer, FC in the paper."""
    return isinstance(node.operation, keras.layers.Dense)


def parameters(node: Any) -> int:
    """Returns how many numbers the weights of a node's layer are."""
    return int(node.operation.count_params())


def multiplications(node: Any) -> int:
    """Returns about how many there are for a sample: each position takes the kernel once."""
    kernel = _kernels(node.operation)[0]
    outputs = sum(
        math.prod(tensor.shape[1:]) for tensor in node.outputs if None not in tensor.shape[1:]
    )
    return parameters(node) * max(1, outputs // int(kernel.shape[-1]))


def shape_key(node: Any) -> str:
    """Returns what a threshold is kept under: the layer's class, shape, input and dtype.

    E.g. "Conv2D on 224x224x64 float32: filters=64 kernel_size=[3, 3] …".
    """
    inputs = ", ".join(_text(tensor.shape) for tensor in node.input_tensors)
    settings = " ".join(f"{name}={value}" for name, value in _settings(node.operation).items())
    layer = node.operation
    return f"{type(layer).__name__} on {inputs} {layer.compute_dtype}: {settings}"


def shape_type(node: Any) -> str:
    """Returns what layers of one type have in common: class, window and output.

    The paper names 5 types of convolutions in VGG-19, so that the number of channels that come in
    makes no difference.
    """
    outputs = ", ".join(_text(tensor.shape) for tensor in node.outputs)
    return f"{type(node.operation).__name__} to {outputs}: {_settings(node.operation)}"


def _kernels(operation: Any) -> list[Any]:
    weights = getattr(operation, "weights", ())
    return [w for w in weights if len(w.shape) > 1 and w.name not in _OF_NORMALIZATION]


def _settings(layer: Any) -> dict[str, str]:
    """Returns the plain values in a layer's configuration."""
    if isinstance(layer, keras.Model):  # a nested one is its layers
        return {"layers": str([_settings(one) for one in layer.layers])}
    settings = {}
    for name, value in sorted(layer.get_config().items()):
        whole = isinstance(value, int | float | str | list | tuple)
        if whole and name not in _IRRELEVANT:
            settings[name] = json.dumps(value)
    return settings


def _text(shape: Any) -> str:
    return "x".join("?" if size is None else str(size) for size in shape[1:])

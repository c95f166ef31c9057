"""What real ranks of `trepak bench chicle` train: chunks, and a network that only waits."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import keras

from trepak import chicle
from trepak.models.emulated_layers import EmulatedLayer
from trepak.tf_plugins.chicle.chunk import Field

# By layer, its variables; 62,006 weights (section 5.1).
_SHAPES = (
    ((5, 5, 3, 6), (6,)),
    ((5, 5, 6, 16), (16,)),
    ((400, 120), (120,)),
    ((120, 84), (84,)),
    ((84, 10), (10,)),
)


def network(milliseconds: float) -> keras.Model:
    """Returns the network that the paper trains on CIFAR-10, emulated.

    It takes one number for each sample, and returns one.

    Args:
        milliseconds: of a sample's forward and backward pass.
    """
    each = milliseconds / 3 / len(_SHAPES)  # the backward pass takes twice as long as the forward
    layers = [EmulatedLayer(shapes, [], each) for shapes in _SHAPES]
    return keras.Sequential([keras.Input((1,)), *layers])


def whole_chunks(fields: dict[str, Any], state: Sequence[Field], size: int) -> dict[str, Any]:
    """Returns the samples that fill chunks: others would make one that is smaller."""
    each = chicle.Cutting(fields, state, size).sizes[0]
    count = len(next(iter(fields.values()))) // each * each
    return {name: values[:count] for name, values in fields.items()}

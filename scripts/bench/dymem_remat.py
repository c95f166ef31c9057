"""Keras' own way to train in little memory, at its best placement: blocks that compute anew.

`keras.RematScope` around single layers saves nothing here: a convolution keeps its input anyway,
and BatchNormalization can't be in one (TensorFlow's `recompute_grad` takes no keyword arguments).
So each block, up to where its branches are joined, is a layer that keeps its input alone.
"""

from __future__ import annotations

from typing import Any

import keras


class _Block(keras.Layer):
    """A model as a layer whose call takes no keyword arguments."""

    def __init__(self, block: Any) -> None:
        super().__init__()
        self.block = block

    def call(self, x: Any) -> Any:
        """Applies the block."""
        return self.block(x)

    def compute_output_shape(self, shape: Any) -> Any:
        """Returns the block's."""
        return self.block.compute_output_shape(shape)


def block_ends(model: Any) -> list[Any]:
    """Returns the layers behind joins through which all goes, so that a block may end there."""
    layers = model.layers
    number = {id(layer.output): at for at, layer in enumerate(layers)}
    last_reader = [0] * len(layers)
    for at, layer in enumerate(layers):
        inputs = layer.input if isinstance(layer.input, list) else [layer.input]
        for tensor in inputs:
            if id(tensor) in number:
                last_reader[number[id(tensor)]] = at
    ends, reads_until, joined = [], 0, False
    for at, layer in enumerate(layers[:-1]):
        joins = isinstance(layer, keras.layers.Add | keras.layers.Concatenate)
        is_alone = reads_until <= at  # what came before is read by nobody behind it
        joined = joined or joins
        if is_alone and joined and not isinstance(layer, keras.layers.Add):
            ends.append(layer)
            joined = False
        reads_until = max(reads_until, last_reader[at])
    return ends


def rematerialized(model: Any) -> Any:
    """Returns the same network, whose blocks compute their tensors anew in the backward pass."""
    image = x = keras.Input(model.input.shape[1:])
    begin = model.input
    for end in block_ends(model):
        block = keras.Model(begin, end.output)
        with keras.RematScope(mode="full"):
            layer = _Block(block)
        x, begin = layer(x), end.output
    return keras.Model(image, keras.Model(begin, model.output)(x))

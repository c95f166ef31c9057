"""What networks are written in: layers by name and size, to be made for real or emulated.

An architecture is a function of a `Builder`, which makes Keras layers of it; the one in `emulation`
makes layers with the same variables whose arithmetic takes an accelerator's time.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import keras

Shape = tuple[int, ...]
Window = tuple[int, int]


def pooled(size: int, window: int, stride: int, padding: str) -> int:
    """Returns how many windows fit along a dimension."""
    return math.ceil((size if padding == "same" else size - window + 1) / stride)


class Builder:
    """Makes a network of Keras layers; what it takes and returns stands for activations.

    Images are channels-last; shapes are of one sample, without the batch.
    """

    def __init__(self) -> None:
        """Starts a network without layers."""
        self._counts: dict[str, int] = {}

    def _named(self, kind: str) -> str:
        """Returns a name for the next layer of a kind, in the order of the forward pass."""
        self._counts[kind] = self._counts.get(kind, 0) + 1
        return f"{kind}_{self._counts[kind]}"

    def input(self, shape: Shape, dtype: str = "float32") -> Any:
        """Returns the network's input."""
        return keras.Input(shape, dtype=dtype)

    def shape(self, x: Any) -> Shape:
        """Returns an activation's shape."""
        return tuple(x.shape[1:])

    def conv(
        self,
        x: Any,
        filters: int,
        window: int | Window,
        stride: int = 1,
        padding: str = "same",
        bias: bool = True,
    ) -> Any:
        """Convolves an image."""
        layer = keras.layers.Conv2D(
            filters, window, stride, padding, use_bias=bias, name=self._named("conv")
        )
        return layer(x)

    def dense(self, x: Any, units: int) -> Any:
        """Multiplies the last dimension with a matrix and adds a bias."""
        return keras.layers.Dense(units, name=self._named("dense"))(x)

    def batch_norm(self, x: Any) -> Any:
        """Normalizes channels over the batch; learns a scale and an offset."""
        return keras.layers.BatchNormalization(epsilon=1e-5, name=self._named("batch_norm"))(x)

    def layer_norm(self, x: Any) -> Any:
        """Normalizes each sample's last dimension; learns a scale and an offset."""
        return keras.layers.LayerNormalization(name=self._named("layer_norm"))(x)

    def embedding(self, x: Any, rows: int, width: int) -> Any:
        """Looks up a row for each integer."""
        return keras.layers.Embedding(rows, width, name=self._named("embedding"))(x)

    def lstm(self, x: Any, units: int) -> Any:
        """Runs over a sequence; returns its last output."""
        return keras.layers.LSTM(units, name=self._named("lstm"))(x)

    def attention(self, x: Any, heads: int) -> Any:
        """Multi-head self-attention over a sequence, with its four projections."""
        width = self.shape(x)[-1]
        layer = keras.layers.MultiHeadAttention(
            heads, width // heads, name=self._named("attention")
        )
        return layer(x, x)

    def pool(self, x: Any, kind: str, window: int, stride: int, padding: str = "same") -> Any:
        """Takes the "max" or the "average" of windows of an image."""
        layers = {"max": keras.layers.MaxPooling2D, "average": keras.layers.AveragePooling2D}
        return layers[kind](window, stride, padding)(x)

    def mean(self, x: Any) -> Any:
        """Averages over all dimensions but the last."""
        layers = keras.layers
        image = len(self.shape(x)) == 3
        return (layers.GlobalAveragePooling2D if image else layers.GlobalAveragePooling1D)()(x)

    def pointwise(self, x: Any, function: str) -> Any:
        """Applies an activation function, "relu" or "leaky_relu", to each element."""
        return keras.layers.Activation(function)(x)

    def flatten(self, x: Any) -> Any:
        """Makes one dimension of all."""
        return keras.layers.Flatten()(x)

    def add(self, xs: Sequence[Any]) -> Any:
        """Adds activations of the same shape."""
        return keras.layers.Add()(list(xs))

    def concat(self, xs: Sequence[Any]) -> Any:
        """Joins activations along the last dimension."""
        return keras.layers.Concatenate()(list(xs))

    def model(self, x: Any, output: Any, name: str) -> keras.Model:
        """Returns the network between an input and an output."""
        return keras.Model(x, output, name=name)

"""Networks whose layers take an accelerator's time instead of computing.

Variables, gradients, the graph and what the ranks exchange are real; a layer's arithmetic, forward
and backward, is a wait (`trepak.ops.emulated_compute`). Activations are one number per sample, or
have their sizes where they are what ranks exchange.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import keras

from trepak.models.builder import Builder, Shape, Window, pooled
from trepak.models.emulated_layers import EmulatedLayer, Resized
from trepak.models.profiles import Profile


@dataclass(frozen=True)
class Activation:
    """What stands for an activation: a tensor (batch, values), and the shape it would have."""

    tensor: Any
    shape: Shape


class EmulatedBuilder(Builder):
    """Replaces every layer of `Builder` by an emulated one with the same variables.

    Layers without variables take no time of their own: a profile's efficiency has them in it.
    """

    def __init__(
        self,
        profile: Profile,
        shrink: float = 1.0,
        stretch: float = 1.0,
        activations: bool = False,
        saturates: bool = False,
    ) -> None:
        """Starts a network.

        Args:
            profile: the accelerator.
            shrink: every variable has 1/shrink of its elements, all in its last dimension.
            stretch: the accelerator takes so many times as long.
            activations: each has 1/shrink of its elements, too; else one number per sample.
            saturates: small batches are slower, by the profile's threshold batch sizes.
        """
        super().__init__()
        self._profile = profile
        self._shrink = shrink
        self._stretch = stretch
        self._activations = activations
        self._saturates = saturates

    def _shrunken(self, shape: Shape) -> Shape:
        if self._shrink == 1:
            return shape
        # As many dimensions as before: they tell a matrix from a convolution's kernel.
        return (*[1] * (len(shape) - 1), max(1, round(math.prod(shape) / self._shrink)))

    def _layer(
        self,
        kind: str,
        x: Activation,
        shape: Shape,
        operations: float,
        variables: Sequence[Shape],
        others: Sequence[Shape] = (),
    ) -> Activation:
        saturates = self._saturates and operations > 0
        layer = EmulatedLayer(
            [self._shrunken(variable) for variable in variables],
            [self._shrunken(variable) for variable in others],
            self._stretch * self._profile.milliseconds(operations),
            self._profile.overhead(kind, x.shape[0]) if saturates else 0.0,
            kind,
            name=self._named(kind),
        )
        return self._sized(Activation(layer(x.tensor), x.shape), shape)

    def _size(self, shape: Shape) -> int:
        """Returns the numbers per sample that stand for an activation."""
        return max(1, round(math.prod(shape) / self._shrink)) if self._activations else 1

    def _sized(self, x: Activation, shape: Shape, kind: str = "resized") -> Activation:
        if x.tensor.shape[-1] == self._size(shape):
            return Activation(x.tensor, shape)
        resized = Resized(self._size(shape), name=self._named(kind))
        return Activation(resized(x.tensor), shape)

    def input(self, shape: Shape, dtype: str = "float32") -> Activation:
        """See `Builder`."""
        return Activation(keras.Input((self._size(shape),)), shape)

    def shape(self, x: Activation) -> Shape:
        """See `Builder`."""
        return x.shape

    def conv(
        self,
        x: Activation,
        filters: int,
        window: int | Window,
        stride: int = 1,
        padding: str = "same",
        bias: bool = True,
    ) -> Activation:
        """See `Builder`."""
        high, wide = (window, window) if isinstance(window, int) else window
        *image, channels = x.shape
        size = (pooled(image[0], high, stride, padding), pooled(image[1], wide, stride, padding))
        kernel = (high, wide, channels, filters)
        variables = [kernel, (filters,)] if bias else [kernel]
        operations = 2.0 * math.prod(size) * math.prod(kernel)
        return self._layer("conv", x, (*size, filters), operations, variables)

    def dense(self, x: Activation, units: int) -> Activation:
        """See `Builder`."""
        operations = 2.0 * math.prod(x.shape) * units
        variables = [(x.shape[-1], units), (units,)]
        return self._layer("dense", x, (*x.shape[:-1], units), operations, variables)

    def batch_norm(self, x: Activation) -> Activation:
        """See `Builder`."""
        pair = [(x.shape[-1],)] * 2
        return self._layer("batch_norm", x, x.shape, 0.0, pair, pair)

    def layer_norm(self, x: Activation) -> Activation:
        """See `Builder`."""
        return self._layer("layer_norm", x, x.shape, 0.0, [(x.shape[-1],)] * 2)

    def embedding(self, x: Activation, rows: int, width: int) -> Activation:
        """See `Builder`."""
        return self._layer("embedding", x, (*x.shape, width), 0.0, [(rows, width)])

    def lstm(self, x: Activation, units: int) -> Activation:
        """See `Builder`."""
        steps, features = x.shape
        variables = [(features, 4 * units), (units, 4 * units), (4 * units,)]
        operations = 2.0 * steps * (features + units) * 4 * units
        return self._layer("lstm", x, (units,), operations, variables)

    def attention(self, x: Activation, heads: int) -> Activation:
        """See `Builder`."""
        steps, width = x.shape
        projections = [(width, heads, width // heads), (heads, width // heads)] * 3
        output = [(heads, width // heads, width), (width,)]
        operations = 2.0 * steps * width * (4 * width + 2 * steps)
        return self._layer("attention", x, x.shape, operations, projections + output)

    def pool(
        self, x: Activation, kind: str, window: int, stride: int, padding: str = "same"
    ) -> Activation:
        """See `Builder`."""
        high, wide, channels = x.shape
        sizes = (pooled(size, window, stride, padding) for size in (high, wide))
        shape = (*sizes, channels)
        return x if shape == x.shape else self._sized(x, shape, "pool")

    def mean(self, x: Activation) -> Activation:
        """See `Builder`."""
        return self._sized(x, x.shape[-1:])

    def pointwise(self, x: Activation, function: str) -> Activation:
        """See `Builder`."""
        return x

    def flatten(self, x: Activation) -> Activation:
        """See `Builder`."""
        return Activation(x.tensor, (math.prod(x.shape),))

    def add(self, xs: Sequence[Activation]) -> Activation:
        """See `Builder`."""
        return Activation(keras.layers.Add()([x.tensor for x in xs]), xs[0].shape)

    def concat(self, xs: Sequence[Activation]) -> Activation:
        """See `Builder`."""
        channels = sum(x.shape[-1] for x in xs)
        kind = keras.layers.Concatenate if self._activations else keras.layers.Average
        return Activation(kind()([x.tensor for x in xs]), (*xs[0].shape[:-1], channels))

    def model(self, x: Activation, output: Activation, name: str) -> keras.Model:
        """See `Builder`."""
        return keras.Model(x.tensor, output.tensor, name=name)

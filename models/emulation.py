"""Networks whose layers take an accelerator's time instead of computing.

Variables, gradients, the graph and what the ranks exchange are real; activations are one number per
sample, and a layer's arithmetic, forward and backward, is a wait (`trepak.ops.emulated_compute`).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import keras
import tensorflow as tf

from trepak.models.builder import Builder, Shape, Window, pooled
from trepak.models.profiles import Profile
from trepak.ops import emulated_compute

_BACKWARD = 2.0  # a product for the gradient of the input, and one for that of the weights


class EmulatedLayer(keras.layers.Layer):
    """A layer with real variables, whose arithmetic is a wait.

    It returns its input. A variable's gradient is a thousandth of its value plus the mean of the
    upstream gradient: of full size, finite, and different on ranks with different data.
    """

    def __init__(
        self,
        trainable_shapes: Sequence[Shape],
        other_shapes: Sequence[Shape],
        milliseconds: float,
        **kwargs: Any,
    ) -> None:
        """Makes a layer.

        Args:
            trainable_shapes: of its trainable variables.
            other_shapes: of its other variables, e.g. moving averages.
            milliseconds: time of the forward pass per sample; backward takes twice that.
            kwargs: see `keras.layers.Layer`.
        """
        super().__init__(**kwargs)
        self.milliseconds = milliseconds
        for shapes, trainable in ((trainable_shapes, True), (other_shapes, False)):
            for shape in shapes:
                self.add_weight(shape=shape, initializer="random_uniform", trainable=trainable)

    def call(self, x: Any) -> Any:
        """Returns x, when this layer would have been computed."""
        values = [tf.convert_to_tensor(variable.value) for variable in self.trainable_variables]
        return self._work(x, *values)

    def compute_output_shape(self, input_shape: Any) -> Any:
        """Returns the input's: Keras need not trace the layer to find out."""
        return input_shape

    def _work(self, x: Any, *values: Any) -> Any:
        batch = tf.cast(tf.shape(x)[0], tf.float32)
        milliseconds = self.milliseconds * batch

        @tf.custom_gradient
        def work(x: Any, *values: Any) -> tuple[Any, Any]:
            def gradient(upstream: Any) -> tuple[Any, ...]:
                time = _BACKWARD * milliseconds
                passed = emulated_compute(upstream, time, label=f"{self.name} backward")
                mean = tf.reduce_mean(passed)
                return passed, *(1e-3 * value + mean for value in values)

            with tf.control_dependencies(values):  # a layer cannot begin without its parameters
                return emulated_compute(x, milliseconds, label=self.name), gradient

        return work(x, *values)


@dataclass(frozen=True)
class Activation:
    """What stands for an activation: one number per sample, and the shape it would have."""

    tensor: Any
    shape: Shape


class EmulatedBuilder(Builder):
    """Replaces every layer of `Builder` by an emulated one with the same variables.

    Layers without variables take no time of their own: a profile's efficiency has them in it.
    """

    def __init__(self, profile: Profile, shrink: float = 1.0, stretch: float = 1.0) -> None:
        """Starts a network.

        Args:
            profile: the accelerator.
            shrink: every variable has 1/shrink of its elements, all in its last dimension.
            stretch: the accelerator takes so many times as long.
        """
        super().__init__()
        self._profile = profile
        self._shrink = shrink
        self._stretch = stretch

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
        layer = EmulatedLayer(
            [self._shrunken(variable) for variable in variables],
            [self._shrunken(variable) for variable in others],
            self._stretch * self._profile.milliseconds(operations),
            name=self._named(kind),
        )
        return Activation(layer(x.tensor), shape)

    def input(self, shape: Shape, dtype: str = "float32") -> Activation:
        """See `Builder`."""
        return Activation(keras.Input((1,)), shape)

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
        return Activation(x.tensor, (*sizes, channels))

    def mean(self, x: Activation) -> Activation:
        """See `Builder`."""
        return Activation(x.tensor, x.shape[-1:])

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
        mixed = keras.layers.Average()([x.tensor for x in xs])
        return Activation(mixed, (*xs[0].shape[:-1], channels))

    def model(self, x: Activation, output: Activation, name: str) -> keras.Model:
        """See `Builder`."""
        return keras.Model(x.tensor, output.tensor, name=name)

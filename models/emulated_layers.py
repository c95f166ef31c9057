"""Layers that take an accelerator's time instead of computing."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import keras
import tensorflow as tf

from trepak.models.builder import Shape
from trepak.ops import emulated_compute

_BACKWARD = 2.0  # a product for the gradient of the input, and one for that of the weights


class Resized(keras.layers.Layer):
    """Gives each sample so many values: its first ones, or all of them again and again."""

    def __init__(self, values: int, **kwargs: Any) -> None:
        """Makes a layer; `values` are of a sample, for the rest see `keras.layers.Layer`."""
        super().__init__(**kwargs)
        self.values = values

    def call(self, x: Any) -> Any:
        """Takes (batch, any number), returns (batch, values)."""
        times = -(-self.values // x.shape[-1])
        return (tf.tile(x, [1, times]) if times > 1 else x)[:, : self.values]

    def compute_output_shape(self, input_shape: Any) -> Any:
        """Returns (batch, values): Keras need not trace the layer to find out."""
        return (*input_shape[:-1], self.values)


class EmulatedLayer(keras.layers.Layer):
    """A layer with real variables, whose arithmetic is a wait.

    It returns its input. A variable's gradient is a thousandth of its value plus the mean of the
    upstream gradient: of full size, finite, and different on ranks with different data.

    Attributes:
        kind: what it stands for, such as "dense"; "" for nothing in particular.
    """

    def __init__(
        self,
        trainable_shapes: Sequence[Shape],
        other_shapes: Sequence[Shape],
        milliseconds: float,
        overhead: float = 0.0,
        kind: str = "",
        **kwargs: Any,
    ) -> None:
        """Makes a layer.

        Args:
            trainable_shapes: of its trainable variables.
            other_shapes: of its other variables, e.g. moving averages.
            milliseconds: time of the forward pass per sample; backward takes twice that.
            overhead: so many samples' time comes on top for each batch.
            kind: what it stands for.
            kwargs: see `keras.layers.Layer`.
        """
        super().__init__(**kwargs)
        self.milliseconds, self.overhead, self.kind = milliseconds, overhead, kind
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
        samples = tf.cast(tf.shape(x)[0], tf.float32) + self.overhead
        milliseconds = self.milliseconds * samples

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

"""Dropout whose numbers belong to the sample: the same in whatever token the sample is.

Number i of a sample is number i of SplitMix64's stream (Steele, Lea and Flood, 2014) for the
layer's seed, its place in the model, the iteration and the sample: a hash, without a state. A
layer's own call is put aside while a sub-model runs, and is back after it.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from typing import Any

import keras
import numpy as np
import tensorflow as tf
from keras.src.layers.regularization.spatial_dropout import BaseSpatialDropout

_GAMMA = np.uint64(0x9E3779B97F4A7C15)  # 2^64 divided by the golden ratio, odd
_MIXERS = (
    (np.uint64(30), np.uint64(0xBF58476D1CE4E5B9)),
    (np.uint64(27), np.uint64(0x94D049BB133111EB)),
)
_LAST_SHIFT = np.uint64(31)
_TO_UNIT = 2.0**-53  # a float64 holds 53 bits

# Layers are the user's, shared by all sub-models: one runs with calls put aside at a time.
_PUT_ASIDE = threading.RLock()


@dataclass
class Draws:
    """Random numbers for a batch.

    Attributes:
        sample_ids: int64, (batch,): each sample's number in the batch of all ranks.
        iteration: int64, a scalar.
    """

    sample_ids: Any
    iteration: Any
    _calls: dict[int, int] = field(default_factory=dict)

    def bits(self, layer: Any, place: int, count: Any, of_samples: bool = True) -> Any:
        """Returns 64 random bits for each element; other ones at each call of a layer.

        Args:
            layer: whose generator has the seed.
            place: of the layer among those that draw: layers with one seed draw other numbers.
            count: elements of a sample.
            of_samples: False for numbers that all samples share.

        Returns:
            uint64, (batch, count), or (1, count).
        """
        call = self._calls[place] = self._calls.get(place, -1) + 1
        # The generator's second number counts draws, for which the iteration stands here.
        state = tf.cast(layer.seed_generator.state.value[0], tf.uint64)
        for word in (place, call, self.iteration):
            state = _hash(state, tf.cast(word, tf.uint64))
        samples = self.sample_ids if of_samples else [-1]
        streams = _hash(state, tf.cast(samples, tf.uint64))
        return _hash(streams[:, None], tf.cast(tf.range(count), tf.uint64))


def is_known(layer: Any) -> bool:
    """Says whether `drawing` can draw a layer's numbers."""
    return type(layer).call in _CALLS


@contextmanager
def drawing(layers: Iterable[tuple[Any, int]], draws: Draws | None) -> Iterator[None]:
    """Lets layers draw their numbers here while a sub-model runs.

    Args:
        layers: which, and their places in the model.
        draws: for this batch.

    Raises:
        ValueError: there are layers, and no draws.
    """
    layers = list(layers)
    if layers and draws is None:
        raise ValueError(
            f"layer {layers[0][0].name!r} draws numbers for each sample: forward needs sample_ids "
            "and iteration."
        )
    with _PUT_ASIDE if layers else nullcontext():
        try:
            for layer, place in layers:
                vars(layer)["call"] = _call(layer, place, draws)
            yield
        finally:
            for layer, _ in layers:
                vars(layer).pop("call", None)


def _call(layer: Any, place: int, draws: Any) -> Callable[..., Any]:
    def call(inputs: Any, training: bool = False) -> Any:
        if not training:
            return inputs
        message = f"layer {layer.name!r} draws for each sample, and its input has no batch of them"
        same = tf.debugging.assert_equal(tf.shape(inputs)[0], tf.size(draws.sample_ids), message)
        # Nothing to wait for where both are known when the graph is made.
        with tf.control_dependencies([] if same is None else [same]):
            return _CALLS[type(layer).call](layer, place, inputs, draws)

    return call


def _dropout(layer: Any, place: int, inputs: Any, draws: Draws) -> Any:
    if layer.rate == 1:
        return tf.zeros_like(inputs)
    spatial = isinstance(layer, BaseSpatialDropout)
    noise_shape = layer._get_noise_shape(inputs) if spatial else layer.noise_shape
    shape = _filled(noise_shape, inputs)
    of_samples = spatial or noise_shape is None or noise_shape[0] is None
    if not of_samples and noise_shape[0] != 1:
        raise ValueError(
            f"layer {layer.name!r} has the noise_shape {noise_shape}, for batches of one size, and "
            "tokens have several: begin it with None, or with 1."
        )
    bits = draws.bits(layer, place, tf.reduce_prod(shape[1:]), of_samples)
    keep = tf.reshape(bits >= np.uint64(layer.rate * 2**64), tf.concat([[-1], shape[1:]], 0))
    kept = inputs * tf.cast(1 / (1 - layer.rate), inputs.dtype)
    return tf.where(keep, kept, tf.zeros([], inputs.dtype))


def _gaussian_dropout(layer: Any, place: int, inputs: Any, draws: Draws) -> Any:
    deviation = math.sqrt(layer.rate / (1 - layer.rate))
    return inputs * (1 + deviation * _normal(layer, place, inputs, draws))


def _gaussian_noise(layer: Any, place: int, inputs: Any, draws: Draws) -> Any:
    return inputs + layer.stddev * _normal(layer, place, inputs, draws)


def _normal(layer: Any, place: int, inputs: Any, draws: Draws) -> Any:
    """Returns numbers of the normal distribution, of the inputs' shape (Box and Muller, 1958)."""
    shape = tf.shape(inputs)
    bits = draws.bits(layer, place, 2 * tf.reduce_prod(shape[1:]))
    uniform = tf.cast(tf.bitwise.right_shift(bits, np.uint64(11)), tf.float64) * _TO_UNIT
    length, angle = tf.split(uniform, 2, axis=1)
    normal = tf.sqrt(-2 * tf.math.log(1 - length)) * tf.cos(2 * math.pi * angle)
    return tf.cast(tf.reshape(normal, shape), inputs.dtype)


def _filled(noise_shape: Any, inputs: Any) -> Any:
    shape = tf.shape(inputs)
    if noise_shape is None:
        return shape
    return tf.stack([shape[i] if size is None else size for i, size in enumerate(noise_shape)])


def _hash(stream: Any, counter: Any) -> Any:
    z = stream + (counter + np.uint64(1)) * _GAMMA
    for shift, factor in _MIXERS:
        z = tf.bitwise.bitwise_xor(z, tf.bitwise.right_shift(z, shift)) * factor
    return tf.bitwise.bitwise_xor(z, tf.bitwise.right_shift(z, _LAST_SHIFT))


_CALLS: dict[Any, Callable[..., Any]] = {
    keras.layers.Dropout.call: _dropout,
    BaseSpatialDropout.call: _dropout,
    keras.layers.GaussianDropout.call: _gaussian_dropout,
    keras.layers.GaussianNoise.call: _gaussian_noise,
}

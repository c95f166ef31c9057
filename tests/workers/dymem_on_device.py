"""Trains on a device with or without Dymem, and prints what came of it.

    python dymem_on_device.py '{"beyond": "1GiB", …}' DEVICE CASE [LIBRARY]

null for options: plain TensorFlow. LIBRARY: of a pluggable device. Weights go to standard output
as a line of JSON, as numbers: some devices' kernels add in another order each time.
"""

from __future__ import annotations

import json
import sys
from typing import Any

import keras
import numpy as np
import tensorflow as tf
from tensorflow.python.framework import load_library

import trepak
from trepak.ops.loader import load

DEPTH = 8
MIB_FLOATS = 1 << 18


def dense(device: str, batch: int = 256, width: int = 64, steps: int = 12) -> list[Any]:
    """Residual dense layers in a loop of one's own; what has no kernel there is the processor's."""
    random = np.random.default_rng(0)
    with tf.device("CPU:0"):
        weights = [
            tf.Variable(random.normal(0, 0.05, (width, width)).astype("float32"))
            for _ in range(DEPTH)
        ]

    @tf.function
    def step(x: Any, y: Any) -> Any:
        with tf.device(device):
            with tf.GradientTape() as tape:
                for each in weights:
                    x = x + tf.nn.relu(tf.matmul(x, each))
                loss = tf.reduce_mean(tf.square(x - y))
            gradients = tape.gradient(loss, weights)
        for each, gradient in zip(weights, gradients, strict=True):
            each.assign_sub(0.5 * gradient)
        return loss

    x, y = (random.random((batch, width), "float32") for _ in range(2))
    losses = [float(step(tf.constant(x), tf.constant(y))) for _ in range(steps)]
    assert losses[-1] < losses[0]
    return [each.numpy() for each in weights]


def large(device: str) -> list[Any]:
    """What the backward pass reads of it alone takes 64 MiB, all that an apart device has."""
    return dense(device, batch=1 << 16, width=16, steps=2)


def convolutions(device: str) -> list[Any]:
    """A small network of Keras's, by `fit`."""
    layers = keras.layers
    keras.utils.set_random_seed(1)
    tf.config.experimental.enable_op_determinism()
    random = np.random.default_rng(0)
    with tf.device(device):
        image = keras.Input((32, 32, 3))
        x = image
        for _ in range(6):
            x = layers.Conv2D(16, 3, padding="same", use_bias=False)(x)
            x = layers.ReLU()(layers.BatchNormalization()(x))
        x = layers.GlobalAveragePooling2D()(x)
        model = keras.Model(image, layers.Dense(5)(x))
        model.compile(keras.optimizers.SGD(0.05), "mse", jit_compile=False)
        images, labels = random.random((320, 32, 32, 3), "float32"), random.random((320, 5))
        model.fit(images, labels, 32, epochs=2, verbose=0, shuffle=False)
    return list(model.get_weights())


def shortage(device: str) -> list[Any]:
    """Three tensors come back to a device that has room for two; the values that are read."""
    ops, shape = load(), [23, MIB_FLOATS]

    @tf.function
    def swap(values: Any) -> Any:
        ones, read, before = [], [], []
        with tf.device(device):
            step = ops.trepak_step(turns=0)
        for k in range(3):
            with tf.control_dependencies(before), tf.device("CPU:0"):
                value = tf.fill(shape, values[k])
            with tf.device(device):
                ones.append(ops.trepak_offload(tf.identity(value), step, called="test"))
                before = [ops.trepak_synchronize(step)]
        with tf.device(device):
            for one in ones:
                ops.trepak_prefetch(one)
            ops.trepak_synchronize(step)
            for one in reversed(ones):  # the last found no room
                got = ops.trepak_fetch(one, T=tf.float32, shape=shape)
                with tf.device("CPU:0"), tf.control_dependencies([got]):
                    read.append(tf.stack([tf.reduce_min(got), tf.reduce_max(got)]))
        return read

    return [each.numpy() for each in swap(tf.range(3.0))]


CASES = {"dense": dense, "large": large, "convolutions": convolutions, "shortage": shortage}


def main() -> None:
    """Runs the case of the command line."""
    options, device, case, *library = sys.argv[1:]
    if library:
        load_library.load_pluggable_device_library(library[0])
    dymem = None if options == "null" else trepak.Dymem(**json.loads(options))
    told: dict[str, Any] = {"weights": [each.tolist() for each in CASES[case](device)]}
    if dymem is not None:
        told["statistics"] = dymem.statistics()
    print(json.dumps(told), flush=True)


if __name__ == "__main__":
    main()

"""A small convolutional network for images, of the kind that Chicle's evaluation trains."""

from __future__ import annotations

import keras

from trepak.models.builder import Builder, Shape


def convnet(b: Builder, shape: Shape = (32, 32, 3), classes: int = 10) -> keras.Model:
    """Returns two convolutions with ReLU and max-pooling, then three dense layers (section 5.1).

    The paper tells no sizes. These are small, so that a core trains some thousand images a second:
    22,682 parameters for 32x32x3.
    """
    x = image = b.input(shape)
    for filters, stride in ((8, 2), (16, 1)):
        x = b.pool(b.pointwise(b.conv(x, filters, 5, stride), "relu"), "max", 2, 2)
    x = b.flatten(x)
    for units in (64, 32):
        x = b.pointwise(b.dense(x, units), "relu")
    return b.model(image, b.dense(x, classes), "convnet")

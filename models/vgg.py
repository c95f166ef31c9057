"""VGG-16 and VGG-19 (Simonyan and Zisserman, 2015)."""

from __future__ import annotations

import keras

from trepak.models.builder import Builder

_CONVOLUTIONS = {16: (2, 2, 3, 3, 3), 19: (2, 2, 4, 4, 4)}  # in each of the five blocks


def vgg(
    b: Builder, depth: int, classes: int = 1000, size: int = 224, width: float = 1.0
) -> keras.Model:
    """Returns the network of 16 or 19 layers; images of `size` × `size` × 3.

    138,357,544 and 143,667,240 parameters at 1000 classes.

    Args:
        b: makes the layers.
        depth: 16 or 19.
        classes: of the images.
        size: their height and width, at least 32.
        width: multiplies the number of filters and units of each layer but the last.
    """
    image = x = b.input((size, size, 3))
    for filters, count in zip((64, 128, 256, 512, 512), _CONVOLUTIONS[depth], strict=True):
        for _ in range(count):
            x = b.pointwise(b.conv(x, round(filters * width), 3), "relu")
        x = b.pool(x, "max", 2, 2)
    x = b.flatten(x)
    for _ in range(2):
        x = b.pointwise(b.dense(x, round(4096 * width)), "relu")
    return b.model(image, b.dense(x, classes), f"vgg{depth}")

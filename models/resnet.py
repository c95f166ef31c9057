"""ResNet-32, -50, -101 and -152 (He, Zhang, Ren and Sun, 2016)."""

from __future__ import annotations

from typing import Any

import keras

from trepak.models.builder import Builder

_BLOCKS = {50: (3, 4, 6, 3), 101: (3, 4, 23, 3), 152: (3, 8, 36, 3)}  # in each of the four stages


def resnet(b: Builder, depth: int, classes: int = 1000, size: int = 224) -> keras.Model:
    """Returns the network of 50, 101 or 152 layers; images of `size` × `size` × 3.

    25,557,032, 44,549,160 and 60,192,808 trainable parameters at 1000 classes.
    """
    image = b.input((size, size, 3))

    def conv(x: Any, filters: int, window: int, stride: int = 1) -> Any:
        return b.batch_norm(b.conv(x, filters, window, stride, bias=False))

    def block(x: Any, filters: int, stride: int, widened: bool) -> Any:
        shortcut = conv(x, 4 * filters, 1, stride) if widened else x
        y = b.pointwise(conv(x, filters, 1), "relu")
        y = b.pointwise(conv(y, filters, 3, stride), "relu")
        return b.pointwise(b.add([conv(y, 4 * filters, 1), shortcut]), "relu")

    x = b.pool(b.pointwise(conv(image, 64, 7, 2), "relu"), "max", 3, 2)
    for stage, blocks in enumerate(_BLOCKS[depth]):
        for number in range(blocks):
            stride = 2 if stage and not number else 1
            x = block(x, 64 << stage, stride, widened=not number)
    return b.model(image, b.dense(b.mean(x), classes), f"resnet{depth}")


def resnet32(b: Builder, classes: int = 1000, size: int = 224) -> keras.Model:
    """Returns the network of fifteen basic blocks, in three stages; without normalization.

    Args:
        b: makes the layers.
        classes: of the images.
        size: their height and width.
    """
    image = b.input((size, size, 3))

    def block(x: Any, filters: int, stride: int) -> Any:
        shortcut = b.conv(x, filters, 1, stride) if stride > 1 else x
        y = b.pointwise(b.conv(x, filters, 3, stride), "relu")
        return b.pointwise(b.add([b.conv(y, filters, 3), shortcut]), "relu")

    x = b.pointwise(b.conv(image, 16, 3), "relu")
    for stage in range(3):
        for number in range(5):
            x = block(x, 16 << stage, stride=2 if stage and not number else 1)
    return b.model(image, b.dense(b.mean(x), classes), "resnet32")

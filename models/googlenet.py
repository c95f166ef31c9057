"""GoogLeNet (Szegedy et al., 2015), without its two auxiliary classifiers."""

from __future__ import annotations

from typing import Any

import keras

from trepak.models.builder import Builder

# Of each inception block: 1×1; 1×1 before 3×3, 3×3; 1×1 before 5×5, 5×5; 1×1 after pooling.
_BLOCKS = {
    "3a": (64, 96, 128, 16, 32, 32),
    "3b": (128, 128, 192, 32, 96, 64),
    "4a": (192, 96, 208, 16, 48, 64),
    "4b": (160, 112, 224, 24, 64, 64),
    "4c": (128, 128, 256, 24, 64, 64),
    "4d": (112, 144, 288, 32, 64, 64),
    "4e": (256, 160, 320, 32, 128, 128),
    "5a": (256, 160, 320, 32, 128, 128),
    "5b": (384, 192, 384, 48, 128, 128),
}


def googlenet(b: Builder, classes: int = 1000, size: int = 224, width: float = 1.0) -> keras.Model:
    """Returns the network; 6,998,552 parameters at 1000 classes, images of 224 × 224 × 3.

    Before its first inception block it makes images an eighth as wide. Those of fewer than 64
    pixels, such as CIFAR's, it leaves as they are: its first convolution is then 3 × 3, and no
    layer before the block 4a has a stride.

    Args:
        b: makes the layers.
        classes: of the images.
        size: their height and width.
        width: multiplies the number of filters of each convolution.
    """
    image = b.input((size, size, 3))

    def conv(x: Any, filters: int, window: int, stride: int = 1) -> Any:
        return b.pointwise(b.conv(x, max(1, round(filters * width)), window, stride), "relu")

    if size < 64:
        x = conv(conv(conv(image, 64, 3), 64, 1), 192, 3)
    else:
        x = b.pool(conv(image, 64, 7, 2), "max", 3, 2)
        x = b.pool(conv(conv(x, 64, 1), 192, 3), "max", 3, 2)
    for name, (one, before3, three, before5, five, after_pool) in _BLOCKS.items():
        if name in ("4a", "5a"):
            x = b.pool(x, "max", 3, 2)
        branches = [
            conv(x, one, 1),
            conv(conv(x, before3, 1), three, 3),
            conv(conv(x, before5, 1), five, 5),
            conv(b.pool(x, "max", 3, 1), after_pool, 1),
        ]
        x = b.concat(branches)
    return b.model(image, b.dense(b.mean(x), classes), "googlenet")

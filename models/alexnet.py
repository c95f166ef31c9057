"""AlexNet (Krizhevsky, Sutskever and Hinton, 2012), without the two groups of its two GPUs."""

from __future__ import annotations

from typing import Any

import keras

from trepak.models.builder import Builder


def alexnet(b: Builder, classes: int = 1000) -> keras.Model:
    """Returns the network; 62,378,344 parameters at 1000 classes, images of 227 × 227 × 3."""
    image = b.input((227, 227, 3))

    def conv(x: Any, filters: int, window: int, stride: int = 1, padding: str = "same") -> Any:
        return b.pointwise(b.conv(x, filters, window, stride, padding), "relu")

    x = b.pool(conv(image, 96, 11, 4, "valid"), "max", 3, 2, "valid")
    x = b.pool(conv(x, 256, 5), "max", 3, 2, "valid")
    x = conv(conv(x, 384, 3), 384, 3)
    x = b.pool(conv(x, 256, 3), "max", 3, 2, "valid")
    x = b.flatten(x)
    for _ in range(2):
        x = b.pointwise(b.dense(x, 4096), "relu")
    return b.model(image, b.dense(x, classes), "alexnet")

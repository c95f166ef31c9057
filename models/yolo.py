"""YOLO, version 1 (Redmon, Divvala, Girshick and Farhadi, 2016)."""

from __future__ import annotations

from typing import Any

import keras

from trepak.models.builder import Builder

# (filters, window[, stride]) or "pool", up to the two dense layers.
_BACKBONE: tuple[Any, ...] = (
    (64, 7, 2),
    "pool",
    (192, 3),
    "pool",
    *((128, 1), (256, 3), (256, 1), (512, 3)),
    "pool",
    *((256, 1), (512, 3)) * 4,
    *((512, 1), (1024, 3)),
    "pool",
    *((512, 1), (1024, 3)) * 2,
    *((1024, 3), (1024, 3, 2), (1024, 3), (1024, 3)),
)


def yolo(b: Builder, grid: int = 7, boxes: int = 2, classes: int = 20) -> keras.Model:
    """Returns the detector; 271.7 M parameters, images of 448 × 448 × 3.

    Its output holds, for each cell of the grid, `boxes` boxes of 5 numbers and the classes.
    """
    image = x = b.input((448, 448, 3))
    for layer in _BACKBONE:
        if layer == "pool":
            x = b.pool(x, "max", 2, 2)
        else:
            x = b.pointwise(b.conv(x, *layer), "leaky_relu")
    x = b.pointwise(b.dense(b.flatten(x), 4096), "leaky_relu")
    return b.model(image, b.dense(x, grid * grid * (5 * boxes + classes)), "yolo")

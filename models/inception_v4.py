"""Inception-v4 (Szegedy, Ioffe, Vanhoucke and Alemi, 2017)."""

from __future__ import annotations

from typing import Any

import keras

from trepak.models.builder import Builder, Window


def inception_v4(b: Builder, classes: int = 1000, size: int = 299) -> keras.Model:
    """Returns the network; 42,679,816 trainable parameters at 1000 classes, `size` × `size` × 3."""
    image = b.input((size, size, 3))
    x = _stem(b, image)
    for _ in range(4):
        x = _block_a(b, x)
    x = _reduction_a(b, x)
    for _ in range(7):
        x = _block_b(b, x)
    x = _reduction_b(b, x)
    for _ in range(3):
        x = _block_c(b, x)
    return b.model(image, b.dense(b.mean(x), classes), "inception_v4")


def _convs(
    b: Builder, x: Any, *layers: tuple[int, int | Window] | tuple[int, int, int, str]
) -> Any:
    """Applies convolutions (filters, window[, stride, padding]), each normalized, one by one."""
    for filters, window, *rest in layers:
        stride, padding = rest or (1, "same")
        x = b.conv(x, filters, window, stride, padding, bias=False)  # type: ignore[arg-type]
        x = b.pointwise(b.batch_norm(x), "relu")
    return x


def _stem(b: Builder, x: Any) -> Any:
    x = _convs(b, x, (32, 3, 2, "valid"), (32, 3, 1, "valid"), (64, 3))
    x = b.concat([b.pool(x, "max", 3, 2, "valid"), _convs(b, x, (96, 3, 2, "valid"))])
    short = _convs(b, x, (64, 1), (96, 3, 1, "valid"))
    long = _convs(b, x, (64, 1), (64, (1, 7)), (64, (7, 1)), (96, 3, 1, "valid"))
    x = b.concat([short, long])
    return b.concat([_convs(b, x, (192, 3, 2, "valid")), b.pool(x, "max", 3, 2, "valid")])


def _block_a(b: Builder, x: Any) -> Any:
    return b.concat(
        [
            _convs(b, x, (96, 1)),
            _convs(b, x, (64, 1), (96, 3)),
            _convs(b, x, (64, 1), (96, 3), (96, 3)),
            _convs(b, b.pool(x, "average", 3, 1), (96, 1)),
        ]
    )


def _reduction_a(b: Builder, x: Any) -> Any:
    return b.concat(
        [
            _convs(b, x, (384, 3, 2, "valid")),
            _convs(b, x, (192, 1), (224, 3), (256, 3, 2, "valid")),
            b.pool(x, "max", 3, 2, "valid"),
        ]
    )


def _block_b(b: Builder, x: Any) -> Any:
    long = ((192, 1), (192, (7, 1)), (224, (1, 7)), (224, (7, 1)), (256, (1, 7)))
    return b.concat(
        [
            _convs(b, x, (384, 1)),
            _convs(b, x, (192, 1), (224, (1, 7)), (256, (7, 1))),
            _convs(b, x, *long),
            _convs(b, b.pool(x, "average", 3, 1), (128, 1)),
        ]
    )


def _reduction_b(b: Builder, x: Any) -> Any:
    return b.concat(
        [
            _convs(b, x, (192, 1), (192, 3, 2, "valid")),
            _convs(b, x, (256, 1), (256, (1, 7)), (320, (7, 1)), (320, 3, 2, "valid")),
            b.pool(x, "max", 3, 2, "valid"),
        ]
    )


def _block_c(b: Builder, x: Any) -> Any:
    short = _convs(b, x, (384, 1))
    long = _convs(b, x, (384, 1), (448, (3, 1)), (512, (1, 3)))
    halves = [_convs(b, y, (256, window)) for y in (short, long) for window in ((1, 3), (3, 1))]
    return b.concat(
        [
            _convs(b, x, (256, 1)),
            *halves,
            _convs(b, b.pool(x, "average", 3, 1), (256, 1)),
        ]
    )

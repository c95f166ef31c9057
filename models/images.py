"""Generated images shaped like two data sets of images: CIFAR-10 and Fashion-MNIST.

Chicle's Table 1 has both. Sample i is a function of the seed and i alone, so the first n of more
samples are the same ones.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]

CLASSES = 10
CIFAR_SHAPE = (32, 32, 3)
FASHION_SHAPE = (28, 28, 1)
MOST_SAMPLES = 10_000  # all are made at once, in float32


@dataclass(frozen=True)
class _Look:
    """How images of a data set are made.

    Attributes:
        shape: of an image.
        styles: of each class; an image has one of them.
        width: of a pattern's spots, in pixels.
        shift: pixels by which a pattern may be moved, up or down, and left or right.
        disturbed: how strong the pattern of another class is beside the image's own, at most.
        noise: the standard deviation of a pixel's noise, of a range of 1.
    """

    shape: tuple[int, int, int]
    styles: int
    width: float
    shift: int
    disturbed: float
    noise: float


_CIFAR = _Look(CIFAR_SHAPE, styles=4, width=2.5, shift=5, disturbed=0.9, noise=0.2)
_FASHION = _Look(FASHION_SHAPE, styles=3, width=2.5, shift=2, disturbed=0.8, noise=0.15)


def cifar_shaped(samples: int, seed: int = 0) -> tuple[Array, Array]:
    """Returns coloured images of ten classes, shaped like CIFAR-10.

    A class has four patterns of coloured spots. An image shows one of them somewhat moved, with a
    weaker one of another class over it, at a contrast of its own and in noise.

    Args:
        samples: how many, n.
        seed: of everything.

    Returns:
        uint8, (n, 32, 32, 3); and int64, (n,): the classes, from 0 to 9.

    Raises:
        ValueError: `samples` is below 1 or above 10,000.
    """
    return _images(samples, seed, _CIFAR)


def fashion_shaped(samples: int, seed: int = 0) -> tuple[Array, Array]:
    """Returns grey images of ten classes, shaped like Fashion-MNIST; see `cifar_shaped`.

    A class has three patterns, and images are disturbed less.

    Args:
        samples: how many, n.
        seed: of everything.

    Returns:
        uint8, (n, 28, 28, 1); and int64, (n,): the classes, from 0 to 9.

    Raises:
        ValueError: `samples` is below 1 or above 10,000.
    """
    return _images(samples, seed, _FASHION)


def _images(samples: int, seed: int, look: _Look) -> tuple[Array, Array]:
    if not 1 <= samples <= MOST_SAMPLES:
        raise ValueError(f"there are 1 to {MOST_SAMPLES:,} samples, got samples={samples}.")
    # One generator for each kind of draw, sample by sample: more samples leave the first as they
    # are.
    patterns, whole, even, gaussian = (np.random.default_rng([seed, kind]) for kind in range(4))
    each = _patterns(patterns, look)
    ones = [CLASSES, CLASSES - 1, look.styles, look.styles, *[2 * look.shift + 1] * 4]
    drawn = whole.integers(0, ones, (samples, len(ones)))
    classes, others = drawn[:, 0], (drawn[:, 0] + 1 + drawn[:, 1]) % CLASSES
    contrast, disturbed = even.random((samples, 2), np.float32).T
    shown = _moved(each, classes, drawn[:, 2], drawn[:, 4:6] - look.shift)
    over = _moved(each, others, drawn[:, 3], drawn[:, 6:8] - look.shift)
    shown += (look.disturbed * disturbed)[:, None, None, None] * over
    shown *= (0.1 + 0.1 * contrast)[:, None, None, None]
    shown += look.noise * gaussian.standard_normal(shown.shape, np.float32)
    return np.clip(255 * (0.5 + shown), 0, 255).astype(np.uint8), classes


def _patterns(rng: np.random.Generator, look: _Look) -> Array:
    """Returns periodic random fields: float32, (classes, styles, *shape), of variance 1."""
    height, width, _ = look.shape
    white = rng.standard_normal((CLASSES, look.styles, *look.shape))
    squares = np.fft.fftfreq(height)[:, None] ** 2 + np.fft.fftfreq(width)[None] ** 2
    smooth = np.exp(-2 * (np.pi * look.width) ** 2 * squares)[..., None]
    spots = np.fft.ifft2(np.fft.fft2(white, axes=(2, 3)) * smooth, axes=(2, 3)).real
    spots -= spots.mean(axis=(2, 3), keepdims=True)
    return (spots / spots.std(axis=(2, 3, 4), keepdims=True)).astype(np.float32)


def _moved(each: Array, classes: Array, styles: Array, by: Array) -> Array:
    """Returns each sample's pattern, moved by (rows, columns): float32, (n, *shape)."""
    height, width = each.shape[2:4]
    rows = (np.arange(height) + by[:, :1]) % height
    columns = (np.arange(width) + by[:, 1:]) % width
    which = classes[:, None, None], styles[:, None, None]
    return each[(*which, rows[:, :, None], columns[:, None, :])]

"""Generated images: their shapes and classes, the same for each seed; what a network learns."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from sklearn.neighbors import NearestCentroid

from trepak.models.builder import Builder
from trepak.models.convnet import convnet
from trepak.models.images import CIFAR_SHAPE, CLASSES, FASHION_SHAPE, cifar_shaped, fashion_shaped

Make = Callable[..., tuple[np.ndarray, np.ndarray]]
SETS: Any = pytest.mark.parametrize(
    ("make", "shape"),
    [(cifar_shaped, CIFAR_SHAPE), (fashion_shaped, FASHION_SHAPE)],
    ids=["cifar", "fashion"],
)


@SETS
def test_images_are_functions_of_the_seed_alone(make: Make, shape: tuple[int, ...]) -> None:
    images, classes = make(1500, seed=4)
    assert images.shape == (1500, *shape) and images.dtype == np.uint8
    assert classes.dtype == np.int64
    assert np.bincount(classes, minlength=CLASSES) == pytest.approx(150, abs=50)
    fewer = make(500, seed=4)
    assert np.array_equal(fewer[0], images[:500]) and np.array_equal(fewer[1], classes[:500])
    assert not np.array_equal(make(500, seed=5)[0], fewer[0])


@SETS
def test_images_use_the_range_of_bytes(make: Make, shape: tuple[int, ...]) -> None:
    images, _ = make(500)
    assert images.mean() == pytest.approx(127, abs=3) and 30 < images.std() < 90
    assert np.isin(images, (0, 255)).mean() < 0.1  # few are clipped


@SETS
def test_classes_are_not_told_by_the_mean_image(make: Make, shape: tuple[int, ...]) -> None:
    images, classes = make(3000)
    rows = images.reshape(len(images), -1).astype(np.float32)
    right = NearestCentroid().fit(rows[:2000], classes[:2000]).score(rows[2000:], classes[2000:])
    assert 0.15 < right < 0.75


@SETS
@pytest.mark.parametrize("samples", [0, 10_001])
def test_numbers_of_images_are_checked(make: Make, shape: tuple[int, ...], samples: int) -> None:
    with pytest.raises(ValueError, match=f"1 to 10,000 samples, got samples={samples}"):
        make(samples)


@SETS
def test_the_network_is_the_papers(make: Make, shape: tuple[int, ...]) -> None:
    model = convnet(Builder(), shape)
    kinds = [type(layer).__name__ for layer in model.layers]
    assert [kinds.count(kind) for kind in ("Conv2D", "MaxPooling2D", "Dense")] == [2, 2, 3]
    assert model.output_shape == (None, CLASSES)
    assert model.count_params() < 30_000

"""Real handwritten digits, and a small network that learns them in seconds.

The data are the 1,797 scans of 8x8 pixels that scikit-learn brings along: nothing is downloaded.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

CLASSES = 10
IMAGE_SHAPE = (8, 8, 1)
_WHITE = 16.0  # the scans' largest value

# The split is part of the data set: the same for every run, whatever its seed.
_TEST_SHARE = 0.2
_SPLIT_SEED = 0


@dataclass(frozen=True)
class Split:
    """Images and their labels.

    Attributes:
        images: float32, (samples, 8, 8, 1), from 0 to 1.
        labels: int32, (samples,), from 0 to 9.
    """

    images: np.ndarray[Any, Any]
    labels: np.ndarray[Any, Any]

    def __len__(self) -> int:
        return len(self.labels)

    def shard(self, rank: int, size: int) -> Split:
        """Returns the samples that one of `size` ranks works on: each sample is in one shard.

        Shards differ by at most one sample.

        Args:
            rank: which shard, from 0.
            size: the number of shards.

        Raises:
            ValueError: there is no such shard.
        """
        if not 0 <= rank < size:
            raise ValueError(f"there is no shard {rank} of {size}: they count from 0.")
        return Split(self.images[rank::size], self.labels[rank::size])


@dataclass(frozen=True)
class Digits:
    """The data set.

    Attributes:
        train: 1,437 samples.
        test: 360 samples, with the same share of every digit.
    """

    train: Split
    test: Split


def load() -> Digits:
    """Reads the digits and splits them, the same way in every process.

    Raises:
        ImportError: scikit-learn is missing; the message says how to install it.
    """
    try:
        from sklearn.datasets import load_digits
        from sklearn.model_selection import train_test_split
    except ImportError as error:
        raise ImportError(
            "the digits come with scikit-learn: install it with `pip install scikit-learn`, or "
            "trepak with `pip install 'trepak[examples]'`."
        ) from error
    scans, digits = load_digits(return_X_y=True)
    images = (scans / _WHITE).astype(np.float32).reshape(-1, *IMAGE_SHAPE)
    train_images, test_images, train_labels, test_labels = train_test_split(
        images,
        digits.astype(np.int32),
        test_size=_TEST_SHARE,
        stratify=digits,
        random_state=_SPLIT_SEED,
    )
    return Digits(Split(train_images, train_labels), Split(test_images, test_labels))


def build_model() -> Any:
    """Returns a convolutional network of 0.1 million weights that maps images to class logits.

    Its weights depend on `keras.utils.set_random_seed`.
    """
    import keras
    from keras import layers

    def convolution(filters: int) -> list[Any]:
        return [
            layers.Conv2D(filters, 3, padding="same", use_bias=False),
            # An epoch has few batches, so the moving statistics must follow quickly.
            layers.BatchNormalization(momentum=0.9),
            layers.Activation("relu"),
        ]

    return keras.Sequential(
        [
            keras.Input(IMAGE_SHAPE),
            *convolution(32),
            *convolution(32),
            layers.MaxPooling2D(),
            *convolution(64),
            layers.MaxPooling2D(),
            layers.Flatten(),
            layers.Dropout(0.3),
            layers.Dense(128, activation="relu"),
            layers.Dropout(0.3),
            layers.Dense(CLASSES, name="logits"),
        ],
        name="digits",
    )

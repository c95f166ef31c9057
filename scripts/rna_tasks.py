"""What `trepak bench rna` trains: small networks on real digits and on made-up sequences."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import keras
import numpy as np
from keras import layers

from trepak.models import digits

Arrays = tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]

_TRAIN, _TEST = 4096, 512  # made-up samples
_FRAMES, _FEATURES, _VIDEO_CLASSES = 16, 24, 12
_WORDS, _VOCABULARY, _TOPICS, _WIDTH = 16, 64, 8, 32


@dataclass(frozen=True)
class Task:
    """Something to learn.

    Attributes:
        train: inputs and labels.
        test: those that are held out.
        build: returns a new network, whose weights depend on `keras.utils.set_random_seed`.
        rate: the learning rate, of momentum SGD with all ranks.
    """

    train: Arrays
    test: Arrays
    build: Callable[[], keras.Model]
    rate: float


def task(name: str) -> Task:
    """Returns a task by its name.

    Raises:
        KeyError: there is none of that name.
    """
    return {"convolutions": _convolutions, "dense": _dense, "videos": _videos, "sentences": _texts}[
        name
    ]()


def _digits() -> tuple[Arrays, Arrays]:
    data = digits.load()
    return (data.train.images, data.train.labels), (data.test.images, data.test.labels)


def _convolutions() -> Task:
    def build() -> keras.Model:
        return keras.Sequential(
            [
                keras.Input(digits.IMAGE_SHAPE),
                layers.Conv2D(16, 3, padding="same", activation="relu"),
                layers.MaxPooling2D(),
                layers.Conv2D(32, 3, padding="same", activation="relu"),
                layers.Flatten(),
                layers.Dense(64, activation="relu"),
                layers.Dense(digits.CLASSES),
            ]
        )

    train, test = _digits()
    return Task(train, test, build, 0.02)


def _dense() -> Task:
    def build() -> keras.Model:
        hidden = [layers.Dense(256, activation="relu") for _ in range(3)]
        return keras.Sequential(
            [keras.Input(digits.IMAGE_SHAPE), layers.Flatten(), *hidden, layers.Dense(10)]
        )

    train, test = _digits()
    return Task(train, test, build, 0.02)


def _videos() -> Task:
    """Each class is a way through the features; a video shows it with noise, and from anywhere."""
    rng = np.random.default_rng(1)
    ways = rng.normal(size=(_VIDEO_CLASSES, 2 * _FRAMES, _FEATURES)).cumsum(axis=1) / 3

    def videos(count: int) -> Arrays:
        labels = rng.integers(_VIDEO_CLASSES, size=count)
        begin = rng.integers(_FRAMES, size=count)
        frames = begin[:, None] + np.arange(_FRAMES)
        seen = ways[labels[:, None], frames] + rng.normal(size=(count, _FRAMES, _FEATURES))
        return seen.astype("float32"), labels.astype("int32")

    def build() -> keras.Model:
        return keras.Sequential(
            [
                keras.Input((_FRAMES, _FEATURES)),
                layers.LSTM(48),
                layers.Dense(32, activation="relu"),
                layers.Dense(_VIDEO_CLASSES),
            ]
        )

    return Task(videos(_TRAIN), videos(_TEST), build, 0.1)


def _texts() -> Task:
    """Each topic has words that it likes; a sentence has a few of them among any others."""
    rng = np.random.default_rng(2)
    liked = rng.integers(_VOCABULARY, size=(_TOPICS, 6))

    def texts(count: int) -> Arrays:
        labels = rng.integers(_TOPICS, size=count)
        words = rng.integers(_VOCABULARY, size=(count, _WORDS))
        chosen = rng.random((count, _WORDS)) < 0.4
        topical = liked[labels[:, None], rng.integers(6, size=(count, _WORDS))]
        return np.where(chosen, topical, words).astype("int32"), labels.astype("int32")

    def build() -> keras.Model:
        text = keras.Input((_WORDS,), dtype="int32")
        x = layers.Embedding(_VOCABULARY, _WIDTH)(text)
        attended = layers.MultiHeadAttention(4, _WIDTH // 4)(x, x)
        x = layers.LayerNormalization()(x + attended)
        x = layers.LayerNormalization()(x + layers.Dense(_WIDTH, activation="relu")(x))
        return keras.Model(text, layers.Dense(_TOPICS)(layers.GlobalAveragePooling1D()(x)))

    return Task(texts(_TRAIN), texts(_TEST), build, 0.1)

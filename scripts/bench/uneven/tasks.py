"""What is trained: small networks on made-up images, videos and sentences.

Most have what makes many workers worth having: a gradient is mostly noise, as each batch shows few
of many classes, so that gradients of eight workers are worth almost eight of one. (Where they are
not, more workers hardly help, and neither does not waiting for them.)
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import keras
import numpy as np
from keras import layers

from trepak.scripts.bench.uneven.cases import MOST_WORDS, words

Arrays = tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]

_TRAIN, _TEST = 4096, 8192  # samples
_CLASSES = 100
_NOISE, _MORE_NOISE = 2.0, 3.0  # deviation, of a signal's
_VIDEO_NOISE, _MORE_VIDEO_NOISE = 1.0, 2.0
_SIDE, _CHANNELS = 12, 16  # of images
_TILE, _TILE_CHANNELS, _LESS_NOISE = 4, 40, 1.5  # of textures
_FRAMES, _FEATURES, _VIDEO_CLASSES = 12, 24, 101
_VOCABULARY, _WIDTH = 400, 32
_LIKED = 8  # words of a topic


@dataclass(frozen=True)
class Task:
    """Something to learn.

    Attributes:
        train: inputs and labels.
        test: those that are held out.
        more: returns so many others that are held out; always the same ones.
        build: returns a new network, whose weights depend on `keras.utils.set_random_seed`.
        words: of each training sample, if they are sentences.
    """

    train: Arrays
    test: Arrays
    more: Callable[[int], Arrays]
    build: Callable[[], keras.Model]
    words: np.ndarray[Any, Any] | None = None


def task(name: str) -> Task:
    """Returns a task by its name.

    Raises:
        KeyError: there is none of that name.
    """
    tasks: dict[str, Callable[[], Task]] = {
        "residual": lambda: _residual(_NOISE),
        "noisy": lambda: _residual(_MORE_NOISE),  # at best 3 of 4 are recognized
        "dense": lambda: _dense(_NOISE),
        "noisy dense": lambda: _dense(_MORE_NOISE),  # 4 of 7
        "textures": _textures,  # without a large dense layer
        "videos": lambda: _videos(_VIDEO_NOISE),
        "noisy videos": lambda: _videos(_MORE_VIDEO_NOISE),  # half of them
        "sentences": _sentences,
    }
    return tasks[name]()


def _seen_through_noise(
    shape: Sequence[int], classes: int, noise: float, repeated: Sequence[int] = ()
) -> tuple[Arrays, Arrays, Callable[[int], Arrays]]:
    """Returns samples to train with and others to test: each class has one signal of its own.

    The third draws more to test; see `Task`.

    Args:
        shape: of the signals.
        classes: how many.
        noise: its deviation.
        repeated: how often along each axis, if a sample shows its signal several times.
    """
    rng = np.random.default_rng(1)
    signals = rng.normal(size=(classes, *shape))
    if repeated:
        signals = np.tile(signals, (1, *repeated))
        shape = signals.shape[1:]

    def samples(rng: np.random.Generator, count: int) -> Arrays:
        labels = rng.integers(classes, size=count)
        seen = signals[labels] + noise * rng.normal(size=(count, *shape))
        return (seen / np.hypot(1, noise)).astype("float32"), labels.astype("int32")

    return samples(rng, _TRAIN), samples(rng, _TEST), lambda count: samples(_others(), count)


def _others() -> np.random.Generator:
    return np.random.default_rng(3)


def _normalized() -> layers.LayerNormalization:
    return layers.LayerNormalization(axis=(1, 2, 3))


def _residual(noise: float) -> Task:
    def build() -> keras.Model:
        image = keras.Input((_SIDE, _SIDE, 1))
        x = layers.Conv2D(_CHANNELS, 3, strides=2, padding="same")(image)
        x = layers.Activation("tanh")(_normalized()(x))
        y = layers.Conv2D(_CHANNELS, 3, padding="same")(x)
        y = layers.Activation("tanh")(_normalized()(y))
        y = layers.Conv2D(_CHANNELS, 3, padding="same")(y)
        x = layers.Flatten()(_normalized()(x + y))
        return keras.Model(image, layers.Dense(_CLASSES)(x))

    return Task(*_seen_through_noise((_SIDE, _SIDE, 1), _CLASSES, noise), build)


def _dense(noise: float) -> Task:
    def build() -> keras.Model:
        image = keras.Input((_SIDE, _SIDE, 1))
        x = layers.Conv2D(_CHANNELS, 3, strides=2, padding="same")(image)
        x = layers.Flatten()(layers.Activation("tanh")(_normalized()(x)))
        for _ in range(2):
            x = layers.LayerNormalization()(layers.Dense(128, activation="tanh")(x))
        return keras.Model(image, layers.Dense(_CLASSES)(x))

    return Task(*_seen_through_noise((_SIDE, _SIDE, 1), _CLASSES, noise), build)


def _textures() -> Task:
    def build() -> keras.Model:
        image = keras.Input((_SIDE, _SIDE, 1))
        x = layers.Conv2D(_TILE_CHANNELS, _TILE, strides=_TILE)(image)
        x = layers.Activation("tanh")(_normalized()(x))
        for _ in range(2):
            y = layers.Conv2D(_TILE_CHANNELS, 3, padding="same")(x)
            y = layers.Activation("tanh")(_normalized()(y))
            y = layers.Conv2D(_TILE_CHANNELS, 3, padding="same")(y)
            x = _normalized()(x + y)
        x = layers.GlobalAveragePooling2D()(x)
        return keras.Model(image, layers.Dense(_CLASSES)(x))

    tiles = _SIDE // _TILE
    shape, repeated = (_TILE, _TILE, 1), (tiles, tiles, 1)
    return Task(*_seen_through_noise(shape, _CLASSES, _LESS_NOISE, repeated), build)


def _videos(noise: float) -> Task:
    def build() -> keras.Model:
        return keras.Sequential(
            [
                keras.Input((_FRAMES, _FEATURES)),
                layers.LSTM(64),
                layers.LayerNormalization(),
                layers.Dense(64, activation="tanh"),
                layers.Dense(_VIDEO_CLASSES),
            ]
        )

    return Task(*_seen_through_noise((_FRAMES, _FEATURES), _VIDEO_CLASSES, noise), build)


def _sentences() -> Task:
    """Each topic has words that it likes; most words of a sentence are of them; 0 is no word."""
    rng = np.random.default_rng(2)
    liked = rng.integers(1, _VOCABULARY, size=(_CLASSES, _LIKED))

    def texts(rng: np.random.Generator, count: int) -> tuple[Arrays, np.ndarray[Any, Any]]:
        labels = rng.integers(_CLASSES, size=count)
        any_word = rng.integers(1, _VOCABULARY, size=(count, MOST_WORDS))
        chosen = rng.random((count, MOST_WORDS)) < 0.8
        topical = liked[labels[:, None], rng.integers(_LIKED, size=(count, MOST_WORDS))]
        lengths = words(rng, count)
        there = np.arange(MOST_WORDS) < lengths[:, None]
        text = np.where(there, np.where(chosen, topical, any_word), 0)
        return (text.astype("int32"), labels.astype("int32")), lengths

    def build() -> keras.Model:
        text = keras.Input((MOST_WORDS,), dtype="int32")
        there = keras.ops.cast(text > 0, "float32")
        x = layers.Embedding(_VOCABULARY, _WIDTH)(text)
        x = layers.LayerNormalization()(x)
        mask = keras.ops.expand_dims(there, 1)
        attended = layers.MultiHeadAttention(4, _WIDTH // 4)(x, x, attention_mask=mask)
        x = layers.LayerNormalization()(x + attended)
        x = layers.LayerNormalization()(x + layers.Dense(_WIDTH, activation="tanh")(x))
        share = keras.ops.expand_dims(there / keras.ops.sum(there, 1, keepdims=True), 2)
        x = layers.LayerNormalization()(keras.ops.sum(x * share, 1))
        return keras.Model(text, layers.Dense(_CLASSES)(x))

    train, lengths = texts(rng, _TRAIN)
    test, _ = texts(rng, _TEST)
    return Task(train, test, lambda count: texts(_others(), count)[0], build, lengths)

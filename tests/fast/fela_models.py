"""Small models of every kind that Fela cuts, each with a batch."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import keras
import numpy as np

from trepak.models.builder import Builder

L = keras.layers
RANDOM = np.random.default_rng(38)
Case = tuple[keras.Model, list[np.ndarray]]


def in_float64() -> Iterator[None]:
    """Has new layers compute in float64: a fixture."""
    before = keras.config.floatx(), keras.config.dtype_policy()
    keras.config.set_floatx("float64")
    keras.config.set_dtype_policy("float64")
    yield
    keras.config.set_floatx(before[0])
    keras.config.set_dtype_policy(before[1])


def images(batch: int, size: int = 8, channels: int = 3) -> np.ndarray:
    return RANDOM.normal(size=(batch, size, size, channels))


def sequential_cnn(batch: int) -> Case:
    model = keras.Sequential(
        [
            keras.Input((8, 8, 3)),
            L.Conv2D(4, 3, activation="relu"),
            L.MaxPooling2D(),
            L.Conv2D(6, 2),
            L.ReLU(),
            L.Flatten(),
            L.Dense(5, activation="tanh"),
            L.Dense(3),
        ]
    )
    return model, [images(batch)]


def vgg_like(batch: int) -> Case:
    b = Builder()
    image = x = b.input((16, 16, 3), dtype=keras.config.floatx())
    for filters in (4, 8):
        for _ in range(2):
            x = b.pointwise(b.conv(x, filters, 3), "relu")
        x = b.pool(x, "max", 2, 2)
    x = b.pointwise(b.dense(b.flatten(x), 16), "relu")
    return b.model(image, b.dense(x, 4), "vgg_like"), [images(batch, 16)]


def two_branches(batch: int) -> Case:
    image = keras.Input((8, 8, 3))
    x = L.Conv2D(4, 3, padding="same")(image)
    left = L.Conv2D(4, 1, activation="tanh")(x)
    right = L.Conv2D(4, 3, padding="same")(L.MaxPooling2D(2, 1, "same")(x))
    merged = L.Concatenate()([left, right, image])
    twice = left * right + keras.ops.sin(x)
    out = L.Dense(3)(L.Flatten()(merged)) + L.Dense(3)(L.GlobalAveragePooling2D()(twice))
    return keras.Model(image, out), [images(batch)]


def residual(batch: int) -> Case:
    image = keras.Input((8, 8, 3))
    x = L.Conv2D(4, 3, padding="same", use_bias=False)(image)
    x = L.ReLU()(L.BatchNormalization()(x))
    for _ in range(2):
        y = L.BatchNormalization()(L.Conv2D(4, 3, padding="same")(x))
        y = L.BatchNormalization(momentum=0.5)(L.Conv2D(4, 3, padding="same")(L.ReLU()(y)))
        x = L.ReLU()(L.Add()([x, y]))
    return keras.Model(image, L.Dense(3)(L.GlobalAveragePooling2D()(x))), [images(batch)]


def several_inputs_and_outputs(batch: int) -> Case:
    image, numbers = keras.Input((8, 8, 3), name="image"), keras.Input((5,), name="numbers")
    seen = L.Dense(4, name="seen")(L.Flatten()(image))
    early = L.Dense(2, name="early")(seen)
    late = L.Dense(2, name="late")(L.Concatenate()([L.Dense(6, activation="tanh")(seen), numbers]))
    inputs = {"image": image, "numbers": numbers}
    model = keras.Model(inputs, {"late": late, "early": early, "numbers": numbers * 2})
    return model, [images(batch), RANDOM.normal(size=(batch, 5))]


def regularized(batch: int) -> Case:
    image = keras.Input((8, 8, 3))
    x = L.Conv2D(4, 3, kernel_regularizer=keras.regularizers.L2(0.1))(image)
    x = L.ReLU(activity_regularizer=keras.regularizers.L1(0.01))(x)
    x = L.Dense(6, bias_regularizer="l1", activity_regularizer="l2")(L.Flatten()(x))
    inner = keras.Sequential(
        [keras.Input((6,)), L.Dense(4, kernel_regularizer="l2", activity_regularizer="l1")]
    )
    return keras.Model(image, L.Dense(2)(inner(x))), [images(batch)]


def text(batch: int) -> Case:
    words = keras.Input((7,), dtype="int32")
    x = L.Embedding(20, 6, mask_zero=True)(words)
    x = L.Dense(5, activation="tanh")(x)
    scores = L.Dense(3)(L.GRU(4, return_sequences=True)(x))
    out = L.Dense(2)(L.GlobalAveragePooling1D()(x))
    drawn = RANDOM.integers(0, 20, (batch, 7))
    drawn[:, 3] = 0  # is masked
    return keras.Model(words, [out, scores]), [drawn]


def shared_within(batch: int) -> Case:
    """A layer that is called twice, and one without state that is called everywhere."""
    left, right = keras.Input((6,)), keras.Input((6,))
    relu, dense = L.ReLU(name="relu"), L.Dense(4, name="twice", activity_regularizer="l2")
    x = L.Subtract(name="minus")([relu(dense(left)), relu(dense(right))])
    x = relu(L.Dense(5, name="then")(x))
    return keras.Model([left, right], L.Dense(2, name="out")(x)), list(
        RANDOM.normal(size=(2, batch, 6))
    )


def dropped(batch: int) -> Case:
    """What a sample gets out of it does not depend on the others; without BatchNormalization."""
    image, numbers = keras.Input((6, 6, 3)), keras.Input((5,))
    x = L.SpatialDropout2D(0.3)(L.Conv2D(4, 3, activation="tanh", kernel_regularizer="l2")(image))
    seen = L.Dense(6, activity_regularizer="l2")(L.Flatten()(x))
    early = L.Dense(2)(L.GaussianNoise(0.1)(seen))
    late = L.Dropout(0.5)(L.Dense(6, activation="tanh")(L.Concatenate()([seen, numbers])))
    late = L.Dense(2, activity_regularizer="l1")(L.Dropout(0.4)(late) + L.Dropout(0.4)(seen))
    return keras.Model([image, numbers], [early, late, seen]), [
        images(batch, 6),
        RANDOM.normal(size=(batch, 5)),
    ]


CASES: dict[str, Callable[[int], Case]] = {
    case.__name__: case
    for case in (
        sequential_cnn,
        vgg_like,
        two_branches,
        residual,
        several_inputs_and_outputs,
        regularized,
        text,
        shared_within,
    )
}


def as_model_takes(model: Any, inputs: list[Any]) -> Any:
    """Returns flat inputs in the structure in which the model is called."""
    if isinstance(model, keras.Sequential):
        return inputs[0]
    return keras.tree.pack_sequence_as(model.input, inputs)

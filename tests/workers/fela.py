"""Fela on real ranks: the weights are those of one process that trains on all ranks' samples."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Sequence
from typing import Any

import keras
import numpy as np
from harness import Case, add, case
from rna import check_equal_on_all_ranks

import trepak
from trepak.ops.loader import call

BATCH, STEPS = 12, 3
PROCESS_SETS = "dynamic"  # conditional subsets
layers = keras.layers
SIMPLE = ["pool", "flat"]


def simple() -> Any:
    """A small VGG: convolutions, then dense layers, with a regularizer of each kind."""
    x = inputs = keras.Input((10, 10, 2))
    x = layers.Conv2D(4, 3, activation="tanh", name="conv")(x)
    x = layers.MaxPooling2D(name="pool")(x)
    x = layers.Conv2D(6, 3, activation="tanh", activity_regularizer="l2")(x)
    x = layers.Flatten(name="flat")(x)
    x = layers.Dense(8, activation="tanh", kernel_regularizer="l2")(x)
    return keras.Model(inputs, layers.Dense(3)(x))


def branches() -> Any:
    """Two branches, of which one skips a sub-model: several tensors cross the cuts."""
    inputs = keras.Input((10, 10, 2))
    x = layers.Conv2D(4, 3, activation="tanh", name="stem")(inputs)
    left = layers.Conv2D(3, 3, activation="tanh", name="left")(x)
    right = layers.Conv2D(3, 1, activation="tanh", name="right")(x)
    right = layers.Cropping2D(1)(right)
    x = layers.Concatenate(name="joined")([left, right])
    x = layers.Add()([layers.Conv2D(6, 1, name="late")(x), x])
    return keras.Model(inputs, layers.Dense(3)(layers.GlobalAveragePooling2D()(x)))


def batches(rank: int, samples: int = BATCH, steps: int = STEPS) -> tuple[Any, Any]:
    rng = np.random.default_rng([5, rank])
    x = rng.normal(size=(steps, samples, 10, 10, 2))
    return x, rng.integers(0, 3, (steps, samples))


def loss() -> Any:
    return keras.losses.SparseCategoricalCrossentropy(from_logits=True)


def optimizer(kind: str) -> Any:
    make: dict[str, Callable[[], Any]] = {
        "momentum": lambda: keras.optimizers.SGD(0.1, momentum=0.9),
        "adam": lambda: keras.optimizers.Adam(0.01, global_clipnorm=0.5),
    }
    return make[kind]()


class Float64:
    """Makes new layers float64 inside."""

    def __enter__(self) -> None:
        self.before = keras.config.floatx(), keras.config.dtype_policy()
        keras.config.set_floatx("float64")
        keras.config.set_dtype_policy("float64")

    def __exit__(self, *_: Any) -> None:
        keras.config.set_floatx(self.before[0])
        keras.config.set_dtype_policy(self.before[1])


def alone(make: Callable[[], Any], kind: str, sizes: Sequence[int]) -> list[Any]:
    """Returns the weights of one process."""
    keras.utils.set_random_seed(1)
    model = make()
    model.compile(optimizer(kind), loss())
    parts = [batches(rank, samples) for rank, samples in enumerate(sizes)]
    for step in range(STEPS):
        x = np.concatenate([x[step] for x, _ in parts])
        y = np.concatenate([y[step] for _, y in parts])
        model.train_on_batch(x, y)
    return list(model.get_weights())


def check(
    make: Callable[[], Any],
    cuts: Sequence[str],
    kind: str = "momentum",
    uneven: bool = False,
    delays: Sequence[dict[str, Any]] = (),
    **options: Any,
) -> dict[str, Any]:
    """Trains by tokens, and compares with one process; returns what was counted."""
    rank, size = trepak.rank(), trepak.size()
    sizes = [BATCH + 5 * one if uneven else BATCH for one in range(size)]
    with Float64():
        right = alone(make, kind, sizes)
        keras.utils.set_random_seed(1)
        model = make()
        fela = trepak.Fela(model, cuts, **options)
        model.compile(optimizer(kind), loss())
        injected(delays)
        x, y = batches(rank, sizes[rank])
        try:
            model.fit(
                x.reshape(-1, *x.shape[2:]), y.reshape(-1), sizes[rank], shuffle=False, verbose=0
            )
        finally:
            injected([])
        for got, wanted in zip(model.get_weights(), right, strict=True):
            np.testing.assert_allclose(got, wanted, rtol=1e-9, atol=1e-11)
        check_equal_on_all_ranks(model)
        counted = fela.statistics()
        assert counted["iterations"] == STEPS
        fela.close()
    return counted


def injected(delays: Sequence[dict[str, Any]]) -> None:
    call(
        "configure_injection",
        slow=1.0,
        delays=list(delays),
        seed=3,
        rank=trepak.rank(),
        size=trepak.size(),
        kill_step=-1,
    )


def delay(kind: str, seconds: float, probability: float = 0.0) -> dict[str, Any]:
    return {"kind": kind, "low": 0.0, "high": seconds, "probability": probability}


SWITCHES = ("depth_first", "hierarchical", "recompute")
for off in itertools.chain.from_iterable(itertools.combinations(SWITCHES, n) for n in range(4)):
    policies = dict.fromkeys(off, False)
    weights = [(1, 1, 1), (1, 2, 4), (1, 1, 8)][len(off) % 3]
    add(
        __name__,
        "policies without " + (" ".join(off) or "none"),
        Case(functools.partial(check, simple, SIMPLE, threshold=2, weights=weights, **policies)),
    )


@case
def one_sub_model() -> None:
    """Fela is then data-parallel."""
    check(simple, [], threshold=4)


@case
def many_sub_models() -> None:
    check(branches, ["stem", "left", "right", "joined", "late"], threshold=3)


@case
def uneven_batches() -> None:
    check(simple, SIMPLE, uneven=True, threshold=4, weights=[1, 2, 2])


@case
def a_last_batch_of_few_samples() -> None:
    """One sample on rank 0, which has fewer tokens then than there are workers."""
    with Float64():
        keras.utils.set_random_seed(1)
        plain, model = simple(), simple()
        plain.compile(optimizer("momentum"), loss())
        parts = []
        for rank in range(trepak.size()):
            x, y = batches(rank)
            count = 2 * BATCH + 1 + 4 * rank
            parts.append((x.reshape(-1, *x.shape[2:])[:count], y.reshape(-1)[:count]))
        model.set_weights(plain.get_weights())
        for begin in range(0, 3 * BATCH, BATCH):
            x, y = (
                np.concatenate([a[begin : begin + BATCH] for a in one])
                for one in zip(*parts, strict=True)
            )
            plain.train_on_batch(x, y)
        fela = trepak.Fela(model, SIMPLE, threshold=3, weights=[1, 2, 2])
        model.compile(optimizer("momentum"), loss())
        model.fit(*parts[trepak.rank()], BATCH, shuffle=False, verbose=0)
        for got, wanted in zip(model.get_weights(), plain.get_weights(), strict=True):
            np.testing.assert_allclose(got, wanted, rtol=1e-9, atol=1e-11)
        fela.close()


@case
def with_adam_and_one_norm() -> None:
    check(branches, ["left"], kind="adam", threshold=5)


@case
def stragglers_are_helped_while_they_sleep() -> None:
    rules = {"threshold": 2, "weights": [1, 2, 2]}
    for delays in ([delay("round-robin", 0.4)], [delay("probability", 0.3, 0.7)]):
        counted = check(simple, SIMPLE, delays=delays, **rules)
        if trepak.rank() == 0:
            assert counted["served_helped"] > 0, counted
            assert counted["served_remote"] > 0, counted


def trained(make: Callable[[], Any], cuts: Sequence[str], **options: Any) -> Any:
    """Returns a model that was trained by tokens."""
    keras.utils.set_random_seed(1)
    model = make()
    fela = trepak.Fela(model, cuts, **options)
    model.compile(optimizer("momentum"), loss())
    x, y = batches(trepak.rank())
    model.fit(x.reshape(-1, *x.shape[2:]), y.reshape(-1), BATCH, shuffle=False, verbose=0)
    fela.close()
    check_equal_on_all_ranks(model)
    return model


@case
def dropout_does_not_depend_on_tokens() -> None:
    def make() -> Any:
        x = inputs = keras.Input((10, 10, 2))
        x = layers.SpatialDropout2D(0.3)(layers.Conv2D(4, 3, activation="tanh", name="conv")(x))
        x = layers.Dropout(0.4)(layers.Flatten(name="flat")(x))
        return keras.Model(inputs, layers.Dense(3)(x))

    with Float64():
        models = [
            trained(make, ["conv"], threshold=3, weights=[1, 2]),
            trained(make, ["flat"], threshold=5, hierarchical=False),
        ]
    for one, other in zip(*(model.get_weights() for model in models), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-9, atol=1e-11)


@case
def moving_statistics_are_means_over_samples() -> None:
    """Of the first layer they can be computed: its mean is that of all samples."""

    def make() -> Any:
        inputs = keras.Input((10, 10, 2))
        x = layers.BatchNormalization(momentum=0.9, name="first")(inputs)
        return keras.Model(inputs, layers.Dense(3)(layers.GlobalMaxPooling2D()(x)))

    with Float64():
        model = trained(make, ["first"], threshold=5)
    parts = [batches(rank)[0] for rank in range(trepak.size())]
    mean = np.zeros(2)
    for step in range(STEPS):
        x = np.concatenate([part[step] for part in parts])
        mean = 0.9 * mean + 0.1 * x.mean((0, 1, 2))
    np.testing.assert_allclose(model.get_layer("first").moving_mean, mean, rtol=1e-9, atol=1e-11)


@case
def a_conditional_subset() -> None:
    """One rank, then two, train the dense layers; when `fit` ends all ranks have them."""
    for subset in (1, 2):
        check(simple, SIMPLE, threshold=3, weights=[1, 1, 2], subset=subset)

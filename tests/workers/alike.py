"""The optimizer and its settings are alike on all ranks, or what differs is refused."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import keras
import numpy as np
import tensorflow as tf
from bad_input import fails
from features import assert_same_on_all_ranks, some_data
from harness import case

import trepak
import trepak.keras as hvd

OUT = Path(os.environ["OUT"])


def on_first(one: Any, other: Any) -> Any:
    """Returns one thing on rank 0, another on the rest."""
    return one if hvd.rank() == 0 else other


def network(optimizer: Any, seed: int = 0, layers: Any = None, **options: Any) -> Any:
    keras.utils.set_random_seed(seed)
    layers = layers or [keras.layers.Dense(8, "tanh"), keras.layers.Dense(3)]
    model = keras.Sequential([keras.Input((6,)), *layers])
    model.compile(optimizer, loss="mse", **options)
    return model


def train(model: Any, *callbacks: Any, broadcast: bool = True, **options: Any) -> Any:
    x, y = some_data(16, hvd.rank())
    if broadcast:
        callbacks = (hvd.callbacks.BroadcastGlobalVariablesCallback(0), *callbacks)
    return model.fit(x, y, batch_size=8, verbose=0, callbacks=list(callbacks), **options)


SGD, Adam = keras.optimizers.SGD, keras.optimizers.Adam
schedules = keras.optimizers.schedules
DIFFERENT: dict[str, tuple[Callable[[], Any], dict[str, Any], dict[str, Any], str]] = {
    "class": (lambda: on_first(Adam(), keras.optimizers.Adamax()), {}, {}, "class"),
    "momentum": (lambda: SGD(0.1, momentum=on_first(0.5, 0.9)), {}, {}, "momentum"),
    "clipnorm": (lambda: SGD(0.1, clipnorm=on_first(1.0, None)), {}, {}, "clipnorm"),
    "weight_decay": (lambda: Adam(weight_decay=on_first(0.1, 0.2)), {}, {}, "weight_decay"),
    "epsilon": (lambda: Adam(epsilon=on_first(1e-7, 1e-8)), {}, {}, "epsilon"),
    "rate": (lambda: SGD(on_first(0.1, 0.2)), {}, {}, "learning_rate"),
    "schedule": (
        lambda: SGD(schedules.ExponentialDecay(0.1, on_first(10, 20), 0.5)),
        {},
        {},
        "decay_steps",
    ),
    "passes": (SGD, {"backward_passes_per_step": 2}, {"backward_passes_per_step": 4}, "passes"),
    "op": (SGD, {"op": hvd.Average}, {"op": hvd.Sum}, "op is Sum"),
    "compression": (SGD, {}, {"compression": hvd.Compression.fp16}, "compression"),
    "loss_scale": (
        lambda: keras.optimizers.LossScaleOptimizer(SGD(), on_first(1024.0, 2048.0)),
        {},
        {},
        "initial_scale",
    ),
    "scaled": (
        lambda: on_first(SGD(), keras.optimizers.LossScaleOptimizer(SGD())),
        {},
        {},
        "class",
    ),
    "sync": (SGD, {}, {"sync": trepak.RNA()}, "sync="),
    "choices": (SGD, {"sync": trepak.RNA(choices=1)}, {"sync": trepak.RNA()}, "sync="),
    "lookahead": (
        SGD,
        {"sync": trepak.ElasticBSP(lookahead=5)},
        {"sync": trepak.ElasticBSP(lookahead=9)},
        "lookahead=9",
    ),
    "slices": (
        SGD,
        {"transport": trepak.Geryon()},
        {"transport": trepak.Geryon(slice_elements=4096)},
        "slice_elements",
    ),
}


def refuse(name: str, in_fit: bool) -> str:
    """Checks that an option that differs is refused: in `fit`, or in a step of one's own."""
    make, first, others, word = DIFFERENT[name]
    optimizer = hvd.DistributedOptimizer(make(), **on_first(first, others))
    if in_fit:
        model = network(optimizer, jit_compile=False)
        return fails(ValueError, lambda: train(model), word, "rank 0")
    variable = keras.Variable([1.0])
    return fails(ValueError, lambda: optimizer.apply([tf.ones(1)], [variable]), word, "rank 0")


@case
def options_that_differ_in_a_step() -> Any:
    return [refuse(name, in_fit=False) for name in DIFFERENT if hvd.size() > 1]


@case
def options_that_differ_in_fit() -> Any:
    names = ("class", "clipnorm", "scaled", "sync", "slices")
    return [refuse(name, in_fit=True) for name in names if hvd.size() > 1]


@case
def rate_is_the_first_ranks() -> Any:
    for broadcast in (False, True):
        model = network(hvd.DistributedOptimizer(SGD(on_first(0.1, 0.2))))
        train(model, broadcast=broadcast)
        assert float(model.optimizer.learning_rate) == np.float32(0.1)
        assert_same_on_all_ranks(model)


def refused_in_fit(word: str, optimizer: Any, *callbacks: Any, **options: Any) -> Any:
    """Returns what `fit` says where it must refuse; with one rank it trains."""
    model = network(optimizer)
    if hvd.size() == 1:
        return train(model, *callbacks, **options) and None
    return fails(
        (ValueError, RuntimeError), lambda: train(model, *callbacks, **options), word, "rank"
    )


class AtEpochEnd(keras.callbacks.Callback):
    """Does something to the model on one rank."""

    def __init__(self, act: Callable[[Any], None], rank: int = 0) -> None:
        super().__init__()
        self.act, self.rank = act, rank

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        if hvd.rank() == self.rank:
            self.act(self.model)


def every_way() -> list[Any]:
    return [{}, {"transport": trepak.Geryon()}, {"sync": trepak.RNA()}, {"sync": trepak.SSP(3)}]


@case
def rate_changed_by_a_callback() -> Any:
    def lower(model: Any) -> None:
        model.optimizer.learning_rate = 0.01

    return [
        refused_in_fit(
            "learning_rate", hvd.DistributedOptimizer(SGD(0.1), **way), AtEpochEnd(lower), epochs=2
        )
        for way in every_way()
    ]


@case
def setting_changed_by_a_callback() -> Any:
    def change(model: Any) -> None:
        model.optimizer.momentum = 0.5

    optimizer = hvd.DistributedOptimizer(SGD(0.1, momentum=0.9))
    return refused_in_fit("momentum", optimizer, AtEpochEnd(change), epochs=2)


class Adversaries(keras.Model):
    """Two networks with an optimizer each, in attributes and in a list."""

    def __init__(self, optimizers: list[Any]) -> None:
        super().__init__()
        self.networks = [keras.Sequential([keras.Input((6,)), keras.layers.Dense(3)]) for _ in "ab"]
        self.first = optimizers[0]
        self.others = optimizers[1:]
        super().compile()

    def train_step(self, data: Any) -> Any:
        x, y = data
        for net, optimizer in zip(self.networks, [self.first, *self.others], strict=True):
            with tf.GradientTape() as tape:
                loss = tf.reduce_mean((net(x, training=True) - y) ** 2)
            variables = net.trainable_variables
            optimizer.apply_gradients(zip(tape.gradient(loss, variables), variables, strict=True))
        return {"loss": loss}


@case
def optimizers_of_a_model_are_told_apart() -> Any:
    for momenta, word in (
        ((on_first(0.5, 0.9), 0.1), "first's momentum"),
        ((0.1, on_first(0.5, 0.9)), "others[0]'s momentum"),
    ):
        keras.utils.set_random_seed(0)
        model = Adversaries([hvd.DistributedOptimizer(SGD(0.1, momentum=m)) for m in momenta])
        if hvd.size() > 1:
            fails(ValueError, lambda m=model: train(m), word, "rank 0")
    model = Adversaries([hvd.DistributedOptimizer(SGD(0.1)) for _ in "ab"])
    train(model)
    assert_same_on_all_ranks(model)


@case
def what_is_no_difference() -> Any:
    """Functions as rates, numbers that are equal, names, and attributes in another order."""
    rate = eval(compile("lambda: 0.1", f"/somewhere/{hvd.rank()}.py", "eval"))
    optimizer = SGD(rate, clipnorm=on_first(1, 1.0), name=on_first("one", "another"))
    model = network(hvd.DistributedOptimizer(optimizer))
    train(model)
    assert_same_on_all_ranks(model)

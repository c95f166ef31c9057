"""What must be alike on all ranks: what differs is refused soon, naming it and the ranks."""

from __future__ import annotations

import os
import warnings
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


@case
def weights_set_on_one_rank() -> Any:
    def change(model: Any) -> None:
        model.layers[-1].bias.assign_add([0.1, 0.0, 0.0])

    optimizer = hvd.DistributedOptimizer(Adam())
    said = refused_in_fit("/bias", optimizer, AtEpochEnd(change), epochs=2)
    assert hvd.size() == 1 or "1 of 13 variables" in said, said  # a weight, and none of Adam's


@case
def state_set_on_one_rank() -> Any:
    def change(model: Any) -> None:
        model.optimizer.variables[2].assign_add(tf.ones((6, 8)))

    refused_in_fit("1 of 13", hvd.DistributedOptimizer(Adam()), AtEpochEnd(change), epochs=2)


@case
def first_weights_that_differ() -> Any:
    """Before the first step all take the first rank's, with a warning; later it is an error."""
    frozen = keras.layers.Dense(6, kernel_initializer=keras.initializers.Constant(hvd.rank()))
    frozen.trainable = False
    layers = [frozen, keras.layers.Dense(3)]
    model = network(hvd.DistributedOptimizer(Adam()), hvd.rank(), layers)
    first = [trepak.broadcast(w, 0).numpy() for w in model.get_weights()]
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        train(model, broadcast=False)
    assert_same_on_all_ranks(model)
    np.testing.assert_array_equal(frozen.kernel, first[0])
    told = [str(one.message) for one in said if "began with different" in str(one.message)]
    assert len(told) == (hvd.size() > 1 and hvd.rank() == 0), told
    frozen.kernel.assign_add(np.full((6, 6), float(hvd.rank())))
    if hvd.size() > 1:
        words = ("when training begins", "rank 0", "BroadcastGlobalVariablesCallback(0)")
        fails(ValueError, lambda: train(model, broadcast=False), *words)
    train(model)
    assert_same_on_all_ranks(model)


@case
def an_optimizer_that_copies_weights() -> Any:
    """Its state is made of weights: all ranks begin with the state of the first one's."""
    for broadcast in (False, True):
        optimizer = hvd.DistributedOptimizer(keras.optimizers.ScheduleFreeAdamW(0.1))
        model = network(optimizer, seed=hvd.rank())
        optimizer.build(model.trainable_variables)
        trepak.broadcast_variables(model.weights, 0)
        train(model, broadcast=broadcast, epochs=2)
        assert_same_on_all_ranks(model)
        trepak.compare_ranks(model)


@case
def backups_that_are_restored_after_the_broadcast() -> Any:
    if hvd.size() == 1:
        return
    folder = OUT / f"backup-{hvd.rank()}"

    def backup() -> Any:
        return keras.callbacks.BackupAndRestore(folder, delete_checkpoint=False)

    class Interrupt(keras.callbacks.Callback):
        def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
            if epoch == 1:
                raise KeyboardInterrupt

    model = network(hvd.DistributedOptimizer(SGD(0.1)))
    try:
        train(model, backup(), Interrupt(), epochs=4)
    except KeyboardInterrupt:
        pass
    callbacks = [backup()] if hvd.rank() == 0 else []  # the other machine's disk is lost
    model = network(hvd.DistributedOptimizer(SGD(0.1)))
    fails(ValueError, lambda: train(model, *callbacks, epochs=4), "epochs to train", "rank 0")
    model = network(hvd.DistributedOptimizer(SGD(0.1)))
    assert len(train(model, backup(), epochs=4).history["loss"]) == 2
    assert_same_on_all_ranks(model)


@case
def callbacks_that_serve_a_second_model() -> Any:
    broadcast = hvd.callbacks.BroadcastGlobalVariablesCallback(0)
    for seed in (hvd.rank(), 7 + hvd.rank()):
        model = network(hvd.DistributedOptimizer(Adam()), seed)
        train(model, broadcast, broadcast=False)
        assert_same_on_all_ranks(model)


@case
def every_few_steps() -> Any:
    class Change(keras.callbacks.Callback):
        def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
            if batch == 0 and hvd.rank() == 0:
                self.model.layers[-1].bias.assign_add([0.1, 0.0, 0.0])

    os.environ["TREPAK_COMPARE_STEPS"] = "1"
    try:
        optimizer = hvd.DistributedOptimizer(SGD(0.1))
        said = refused_in_fit("bias", optimizer, Change())
        assert hvd.size() == 1 or "after a step" in said, said
    finally:
        del os.environ["TREPAK_COMPARE_STEPS"]


@case
def rounding_is_no_difference() -> Any:
    """What unlike processors round differently is warned of; what is more is refused."""
    model = network(hvd.DistributedOptimizer(SGD(0.0)))
    train(model)
    kernel = model.layers[0].kernel
    epsilon = float(np.finfo("float32").eps)
    kernel.assign(kernel * (1 + on_first(0, 4) * epsilon))
    train(model, broadcast=False)
    kernel.assign(kernel * (1 + on_first(0, 1e-2)))
    if hvd.size() > 1:
        fails(ValueError, lambda: train(model, broadcast=False), "kernel", "rank 0")


@case
def local_variables_are_left_out() -> Any:
    model = network(Adam(0.1))
    local = model.layers[-1]
    model.compile(hvd.PartialDistributedOptimizer(Adam(0.1), local_layers=local), "mse")
    local.bias.assign([hvd.rank()] * 3)
    train(model, broadcast=False, epochs=2)
    trepak.compare_ranks(model)


@case
def in_a_loop_of_ones_own() -> Any:
    model = network(hvd.DistributedOptimizer(SGD(0.1)))
    x, y = some_data(16, hvd.rank())
    model.train_on_batch(x, y)
    trepak.compare_ranks(model)
    model.layers[0].bias.assign([float(hvd.rank())] * 8)
    if hvd.size() > 1:
        fails(ValueError, lambda: trepak.compare_ranks(model), "bias", "rank 0")


@case
def accumulated_gradients_are_each_ranks_own() -> Any:
    inner = SGD(0.1, gradient_accumulation_steps=4)
    model = network(hvd.DistributedOptimizer(inner))
    train(model)  # two of four passes
    assert_same_on_all_ranks(model)


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
def best_weights_that_are_restored_last() -> Any:
    """EarlyStopping restores when training ends: by each rank's own losses, to other weights."""
    losses = on_first([1.0, 2.0, 3.0], [3.0, 2.0, 1.0])

    class Own(keras.callbacks.Callback):
        def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
            logs["mine"] = losses[epoch]

    best = keras.callbacks.EarlyStopping("mine", patience=9, restore_best_weights=True, mode="min")
    optimizer = hvd.DistributedOptimizer(SGD(0.1))
    said = refused_in_fit("kernel", optimizer, Own(), best, epochs=3)
    assert hvd.size() == 1 or "when training ends" in said, said


@case
def a_list_of_callbacks_that_keras_made() -> Any:
    model = network(hvd.DistributedOptimizer(SGD(0.1)), seed=hvd.rank())
    x, y = some_data(16, hvd.rank())
    broadcast = hvd.callbacks.BroadcastGlobalVariablesCallback(0)
    given = keras.callbacks.CallbackList([broadcast], add_history=True, model=model, epochs=2)
    before = list(given.callbacks)
    model.fit(x, y, epochs=2, verbose=0, callbacks=given)
    assert given.callbacks == before
    assert_same_on_all_ranks(model)


@case
def what_is_no_difference() -> Any:
    """Functions as rates, numbers that are equal, names, and attributes in another order."""
    rate = eval(compile("lambda: 0.1", f"/somewhere/{hvd.rank()}.py", "eval"))
    optimizer = SGD(rate, clipnorm=on_first(1, 1.0), name=on_first("one", "another"))
    model = network(hvd.DistributedOptimizer(optimizer))
    train(model)
    assert_same_on_all_ranks(model)

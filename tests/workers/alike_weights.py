"""Weights and the optimizer's state are alike on all ranks, or what differs is refused."""

from __future__ import annotations

import functools
import os
import warnings
from pathlib import Path
from typing import Any

import keras
import numpy as np
import tensorflow as tf
from alike import SGD, Adam, AtEpochEnd, network, on_first, refused_in_fit, train
from bad_input import fails
from features import assert_same_on_all_ranks, some_data
from harness import case

import trepak
import trepak.keras as hvd

OUT = Path(os.environ["OUT"])


@case
def weights_set_on_one_rank() -> Any:
    def change(model: Any) -> None:
        model.layers[-1].bias.assign_add([0.1, 0.0, 0.0])

    optimizer = hvd.DistributedOptimizer(Adam())
    said = refused_in_fit("/bias", optimizer, AtEpochEnd(change), epochs=2)
    assert hvd.size() == 1 or "1 of 13 variables" in said, said  # a weight, and none of Adam's


@case
def what_differs_is_named_among_layers_of_one_shape() -> Any:
    model = keras.Sequential([keras.Input((4,)), *(keras.layers.Dense(4) for _ in range(4))])
    model.compile(hvd.DistributedOptimizer(SGD(0.1)), "mse")
    trepak.broadcast_variables(model.weights, 0)
    changed = model.layers[2].kernel
    changed.assign_add(tf.fill((4, 4), float(hvd.rank())))
    if hvd.size() > 1:
        fails(ValueError, lambda: trepak.compare_ranks(model), f"variable '{changed.path}'")


@case
def layers_frozen_on_one_rank() -> Any:
    model = network(hvd.DistributedOptimizer(Adam()))
    model.layers[0].trainable = hvd.rank() == 0
    if hvd.size() > 1:
        fails(ValueError, lambda: train(model), "rank 0 disagree", "the same ones trainable")


@case
def callbacks_that_one_rank_alone_has() -> Any:
    for alone, word in (
        (hvd.callbacks.BroadcastGlobalVariablesCallback(0), "BroadcastGlobalVariablesCallback is"),
        (hvd.callbacks.MetricAverageCallback(), "different ways"),
    ):
        model = network(hvd.DistributedOptimizer(SGD(0.1)))
        fit = functools.partial(train, model, *on_first([alone], []), broadcast=False)
        if hvd.size() > 1:
            fails((RuntimeError, ValueError), fit, word, "the same callbacks")


@case
def optimizers_that_one_rank_alone_distributes() -> Any:
    model = network(on_first(hvd.DistributedOptimizer(SGD(0.1)), SGD(0.1)))
    if hvd.size() > 1:
        words = ("is distributed is False", "True on rank 0", "on all ranks")
        fails(ValueError, lambda: train(model), *words)


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

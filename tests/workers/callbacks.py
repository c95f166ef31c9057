"""Callbacks and frozen weights, functions that hold sets, process sets, and fits that fail."""

from __future__ import annotations

import contextlib
import functools
from typing import Any

import keras
import metrics
import numpy as np
from alike import SGD, on_first
from bad_input import fails
from features import assert_same_on_all_ranks, some_data
from harness import case
from isolation import LOWER, PROCESS_SETS  # noqa: F401 (which are registered)

import trepak
import trepak.keras as hvd

WORDS = "a bb ccc dddd eeeee f g h".split()
broadcast = hvd.callbacks.BroadcastGlobalVariablesCallback


def frozen_model() -> Any:
    """A model of layers that are frozen, and a trained one behind them."""
    keras.utils.set_random_seed(0)
    frozen = [keras.layers.Dense(8), keras.layers.BatchNormalization()]
    model = keras.Sequential([keras.Input((6,)), *frozen, keras.layers.Dense(3)])
    for layer in frozen:
        layer.trainable = False
    model.compile(hvd.DistributedOptimizer(SGD(0.1)), loss="mse")
    return model


def changing(index: int, name: str) -> Any:
    """A callback that changes a weight of a layer on the last rank, within the epoch."""

    def change(batch: int, logs: Any = None) -> None:
        if batch == 0 and hvd.rank() == hvd.size() - 1:
            weight = getattr(callback.model.layers[index], name)
            weight.assign_add(np.ones(weight.shape))

    callback = keras.callbacks.LambdaCallback(on_train_batch_end=change)
    return callback


@case
def frozen_weights_are_compared_not_averaged() -> Any:
    for index, name in ((0, "kernel"), (1, "gamma")):
        model = frozen_model()
        path = getattr(model.layers[index], name).path
        callbacks = [broadcast(0), changing(index, name)]
        data = some_data(16, hvd.rank())

        def train(model: Any = model, data: Any = data, callbacks: Any = callbacks) -> None:
            model.fit(*data, batch_size=8, verbose=0, callbacks=callbacks)

        if hvd.size() > 1:
            fails(ValueError, train, path, "epoch's end", f"rank {hvd.size() - 1}")


@case
def statistics_of_frozen_layers_are_averaged() -> Any:
    model = frozen_model()
    moved = changing(1, "moving_mean")
    model.fit(*some_data(16, hvd.rank()), 8, verbose=0, callbacks=[broadcast(0), moved])
    assert_same_on_all_ranks(model)
    np.testing.assert_allclose(model.layers[1].moving_mean, [1 / hvd.size()] * 8, rtol=1e-6)
    # In a loop of one's own, too.
    mean = model.layers[1].moving_mean
    mean.assign(np.full(8, hvd.rank()))
    model.layers[0].bias.assign(np.full(8, hvd.rank()))
    paths = trepak.average_state(model)
    np.testing.assert_allclose(mean, [(hvd.size() - 1) / 2] * 8)
    np.testing.assert_array_equal(model.layers[0].bias, [hvd.rank()] * 8)
    assert paths == ([mean.path] if hvd.size() > 1 else [])
    if hvd.size() > 1:
        fails(ValueError, lambda: trepak.compare_ranks(model), model.layers[0].bias.path)


class Configured(SGD):
    """An optimizer whose settings hold sets, whose order is each process's own."""

    settings: Any = None

    def get_config(self) -> dict[str, Any]:
        return super().get_config() | {"settings": self.settings}


def trained(optimizer: Any) -> Any:
    keras.utils.set_random_seed(0)
    model = keras.Sequential([keras.Input((6,)), keras.layers.Dense(3)])
    model.compile(hvd.DistributedOptimizer(optimizer), loss="mse")
    model.fit(*some_data(16, hvd.rank()), 8, verbose=0, callbacks=[broadcast(0)])
    return model


def rates(mode: str) -> list[Any]:
    """Functions whose code holds a set: itself, in a tuple, and in a function within."""
    return [
        lambda: 0.1 if mode in {"a", "bb", "ccc", "dddd", "eeeee", "f", "g", "h"} else 0.2,
        lambda: max(
            0.1 if mode in {"a", "bb", "ccc", "dddd", "eeeee", "f", "g", "h"} else 0.2
            for _ in range(2)
        ),
    ]


@case
def sets_in_code_and_settings_have_no_order() -> Any:
    for rate in rates("a"):
        assert_same_on_all_ranks(trained(SGD(rate)))
    words = frozenset(WORDS)
    for settings in (set(WORDS), {"of": [words, (1, words)]}, {words: 1}, {1: {words, "a", b"x"}}):
        optimizer = Configured(0.1)
        optimizer.settings = settings
        assert_same_on_all_ranks(trained(optimizer))


@case
def sets_that_differ_are_told() -> Any:
    if hvd.size() == 1:
        return
    others = [
        lambda: 0.1 if WORDS[0] in {"a", "bb", "ccc"} else 0.2,
        lambda: 0.1 if WORDS[0] in {"a", "bb", "cc"} else 0.2,
    ]
    nested = [
        lambda: max(0.1 if one in {"a", "bb", "ccc"} else 0.2 for one in WORDS),
        lambda: max(0.1 if one in {"a", "bb", "cc"} else 0.2 for one in WORDS),
    ]
    for pair in (others, nested):
        fails(ValueError, lambda p=pair: trained(SGD(on_first(*p))), "learning_rate", "on rank 0")
    optimizer = Configured(0.1)
    optimizer.settings = {"of": [on_first({"a", "b"}, {"a", "c"})]}
    fails(ValueError, lambda: trained(optimizer), "settings.of", "on rank 0")


def rates_of(optimizer: Any, batches: int, *callbacks: Any) -> list[float]:
    """Trains two epochs; returns the learning rate after each batch."""
    keras.utils.set_random_seed(0)
    model = keras.Sequential([keras.Input((6,)), keras.layers.Dense(3)])
    model.compile(optimizer, loss="mse")
    seen: list[float] = []
    look = keras.callbacks.LambdaCallback(
        on_train_batch_end=lambda batch, logs=None: seen.append(
            float(model.optimizer.learning_rate)
        )
    )
    x, y = some_data(8 * batches, hvd.rank())
    model.fit(x, y, batch_size=8, epochs=2, verbose=0, callbacks=[*callbacks, look])
    return seen


def warmed_up(size: int, steps: int) -> list[float]:
    """Returns the rates of a warm-up of one epoch to 0.1, and of the epoch after it."""
    first = [0.1 / size * ((step + 1) / steps * (size - 1) + 1) for step in range(steps)]
    return [*first, *[0.1] * steps]


@case
def learning_rates_follow_the_process_set() -> Any:
    """Members go by the set's size and steps; who is outside of it goes by its own."""
    warmup = hvd.callbacks.LearningRateWarmupCallback
    batches = 3 + hvd.rank()
    if LOWER.included():
        # Those outside make no call at all.
        optimizer = hvd.DistributedOptimizer(SGD(0.1), process_set=LOWER)
        got = rates_of(optimizer, batches, broadcast(0), warmup(0.1, warmup_epochs=1))
        np.testing.assert_allclose(got, warmed_up(LOWER.size(), 3), rtol=1e-5)
    given = warmup(0.1, warmup_epochs=1, verbose=1, process_set=LOWER)
    if LOWER.included():
        optimizer = hvd.DistributedOptimizer(SGD(0.1), process_set=LOWER)
        got = rates_of(optimizer, batches, broadcast(0), given)
        np.testing.assert_allclose(got, warmed_up(LOWER.size(), 3), rtol=1e-5)
    else:
        np.testing.assert_allclose(rates_of(SGD(0.1), batches, given), [0.1] * 2 * batches)
    schedule = hvd.callbacks.LearningRateScheduleCallback
    optimizer = hvd.DistributedOptimizer(SGD(0.1), process_set=LOWER)
    if LOWER.included():
        by_batch = schedule(0.1, lambda epoch: 1 + epoch, staircase=False)
        got = rates_of(optimizer, batches, broadcast(0), by_batch)
        np.testing.assert_allclose(got, [0.1 + 0.1 * step / 3 for step in range(6)], rtol=1e-5)


@case
def unknown_steps_name_the_rank() -> Any:
    """The last rank of the set does not know how many batches it has."""
    if not LOWER.included():
        return
    x, y = some_data(16, hvd.rank())

    def forever() -> Any:
        while True:
            yield x[:8], y[:8]

    last = LOWER.ranks[-1]
    data = (forever(),) if hvd.rank() == last else (x, y, 8)
    model = keras.Sequential([keras.Input((6,)), keras.layers.Dense(3)])
    model.compile(hvd.DistributedOptimizer(SGD(0.1), process_set=LOWER), loss="mse")
    warmup = hvd.callbacks.LearningRateWarmupCallback(0.1)
    fails(
        ValueError,
        lambda: model.fit(*data, verbose=0, callbacks=[warmup]),
        "LearningRateWarmupCallback",
        f"rank {last}",
        "steps_per_epoch",
    )


@case
def what_fails_leaves_nothing_behind() -> Any:
    """Neither a fit nor an evaluation: later ones find the model's own methods."""
    model = metrics.identity(["mae"])
    x, y, _ = metrics.samples("numbers", hvd.rank())
    kept = metrics.average()
    for name, run in (
        ("on_test_batch_end", model.evaluate),
        ("on_train_batch_end", model.fit),
        ("on_test_batch_end", functools.partial(model.fit, validation_data=(x, y))),
        ("on_epoch_end", model.fit),
        ("on_train_end", model.fit),
    ):
        for callback in (metrics.average(), kept, kept):
            failing = keras.callbacks.LambdaCallback()
            setattr(failing, name, raise_interrupt)
            with contextlib.suppress(InterruptedError):
                run(x, y, len(x), verbose=0, callbacks=[callback, failing])
                raise AssertionError("nothing has failed")
            assert "_get_metrics_result_or_logs" not in vars(model), name
    if hvd.rank() == 0:  # alone: an exchange would not be answered
        model.evaluate(x, y, verbose=0)
    metrics.same(
        metrics.fit(model, "numbers", callbacks=[kept]), metrics.in_one_process(model, "numbers")
    )


def raise_interrupt(*_: Any, **__: Any) -> None:
    raise InterruptedError


@case
def an_evaluation_inside_fit_leaves_fit_its_own() -> Any:
    """A callback evaluates together with all ranks, with a callback of its own."""
    model = metrics.identity([keras.metrics.AUC(name="auc")])
    got: list[Any] = []

    def evaluate(epoch: int, logs: Any) -> None:
        x, y, _ = metrics.samples("one_hot", hvd.rank(), 1)
        got.append(model.evaluate(x, y, verbose=0, return_dict=True, callbacks=[metrics.average()]))

    other = keras.callbacks.LambdaCallback(on_epoch_end=evaluate)
    logs = metrics.fit(model, "one_hot", callbacks=[other, metrics.average()], epochs=2)
    wanted = metrics.in_one_process(model, "one_hot")
    metrics.same(logs, wanted)
    metrics.same(
        got[1], {n.removeprefix("val_"): v for n, v in wanted.items() if n.startswith("val_")}
    )

"""Fela with a staleness bound: ranks go ahead of one that sleeps, and end with equal weights."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf
from fela import BATCH, SIMPLE, Float64, batches, check, delay, injected, loss, optimizer, simple
from harness import case
from rna import check_equal_on_all_ranks

import trepak
import trepak.keras as hvd
from trepak.horovod_ext import exchange
from trepak.tf_plugins.fela.token_trainer import Iteration, TokenTrainer
from trepak.tf_plugins.fela.training import Training
from trepak.tf_plugins.fela.update import Update

layers = keras.layers
STEPS, PAUSE = 9, 0.3  # seconds


def sleeping(is_due: Callable[[int], bool], slept: list[tuple[float, float]] | None = None) -> Any:
    """A callback in which a rank sleeps before some of its steps, and hears nothing meanwhile.

    Args:
        is_due: in which steps.
        slept: gets when it did, from and to, on the machine's clock.
    """

    def pause(step: int, logs: Any) -> None:
        if is_due(step):
            began = time.monotonic()
            time.sleep(PAUSE)
            if slept is not None:
                slept.append((began, time.monotonic()))

    return keras.callbacks.LambdaCallback(on_train_batch_begin=pause)


def the_last_rank(step: int) -> bool:
    return trepak.rank() == trepak.size() - 1 and step % 3 == 1


def in_turns(step: int) -> bool:
    return step % trepak.size() == trepak.rank()


def data(steps: int = STEPS) -> tuple[Any, Any]:
    """What can be learnt: the label is by the mean of a channel."""
    x = batches(trepak.rank(), steps=steps)[0]
    x = x.reshape(-1, *x.shape[2:])
    return x, (x.mean((1, 2))[:, 0] > 0).astype("int64")


def batches_of_all() -> Iterator[tuple[Any, Any]]:
    """Each step's samples and labels of all ranks."""
    parts = exchange.gather([one.tolist() for one in data()], "samples")
    for step in range(STEPS):
        cut = slice(step * BATCH, (step + 1) * BATCH)
        x, y = (np.concatenate([np.array(part[i])[cut] for part in parts]) for i in (0, 1))
        yield x, y


def everywhere(counted: dict[str, Any], name: str) -> list[int]:
    return [int(one) for one in exchange.gather(counted[name], f"Fela's {name}")]


@case
def ranks_go_ahead_of_one_that_sleeps() -> None:
    for staleness in (1, 2):
        keras.utils.set_random_seed(1)
        model = simple()
        fela = trepak.Fela(model, SIMPLE, threshold=3, weights=[1, 2, 2], staleness=staleness)
        model.compile(keras.optimizers.SGD(0.03), loss(), metrics=["accuracy"])
        told = model.fit(
            *data(),
            BATCH,
            4,
            shuffle=False,
            verbose=0,
            callbacks=[sleeping(the_last_rank), hvd.callbacks.MetricAverageCallback()],
        )
        check_equal_on_all_ranks(model)
        counted = fela.statistics()
        assert max(everywhere(counted, "most_stale")) == staleness
        assert counted["iterations"] == 4 * STEPS == int(model.optimizer.iterations)
        if trepak.rank() == 0:
            assert counted["served_iterations"] == 4 * STEPS
            assert counted["served_most_ahead"] == staleness
            assert counted["served_recomputed"] == 0
        losses = told.history["loss"]
        print(f"losses with a staleness of {staleness}: {losses}")
        assert losses[-1] < losses[0], losses
        fela.close()


@case
def weights_are_those_of_the_updates_that_tokens_lacked() -> None:
    """One process repeats it, by the versions of the weights that each token was trained with."""

    def make() -> Any:
        keras.utils.set_random_seed(1)
        x = inputs = keras.Input((10, 10, 2))
        x = layers.Conv2D(4, 3, activation="tanh")(x)
        x = layers.BatchNormalization(momentum=0.7)(x)
        return keras.Model(inputs, layers.Dense(3)(layers.Flatten()(x)))

    trained: list[tuple[int, int, list[int]]] = []  # iteration, version, samples
    versions: dict[int, int] = {}
    begin, last = TokenTrainer.begin, TokenTrainer.last

    def noting_begin(self: TokenTrainer, iteration: int, sums_changes: bool = False) -> Iteration:
        versions[iteration] = int(model.optimizer.iterations)
        return begin(self, iteration, sums_changes)

    def noting_last(self: TokenTrainer, now: Iteration, x: Any, y: Any, ids: Any) -> Any:
        number = int(now.number)
        trained.append((number, versions[number], ids.numpy().tolist()))
        return last(self, now, x, y, ids)

    with Float64():
        model, plain = make(), make()
        fela = trepak.Fela(model, [], threshold=4, staleness=2)
        model.compile(optimizer("momentum"), loss())
        TokenTrainer.begin, TokenTrainer.last = noting_begin, noting_last  # type: ignore[method-assign]
        try:
            model.fit(*data(), BATCH, shuffle=False, verbose=0, callbacks=[sleeping(in_turns)])
        finally:
            TokenTrainer.begin, TokenTrainer.last = begin, last  # type: ignore[method-assign]
        tokens = [token for of_rank in exchange.gather(trained, "tokens") for token in of_rank]
        assert {iteration - version for iteration, version, _ in tokens} > {0}
        plain.compile(optimizer("momentum"), loss())
        weights = [plain.get_weights()]
        for step, (x, y) in enumerate(batches_of_all()):
            variables = [*plain.trainable_variables, *plain.non_trainable_variables]
            sums = [np.zeros(one.shape) for one in variables]
            seen: list[int] = []
            for iteration, version, ids in tokens:
                if iteration == step:
                    plain.set_weights(weights[version])
                    with tf.GradientTape() as tape:
                        value = loss()(y[ids], plain(x[ids], training=True)) * len(ids)
                    made = [*tape.gradient(value, [v.value for v in plain.trainable_variables])]
                    after = [v.numpy() for v in plain.non_trainable_variables]
                    plain.set_weights(weights[version])
                    made += [
                        (new - v.numpy()) * len(ids)
                        for new, v in zip(after, plain.non_trainable_variables, strict=True)
                    ]
                    sums = [one + np.array(other) for one, other in zip(sums, made, strict=True)]
                    seen += ids
            assert sorted(seen) == list(range(len(x)))  # each sample once
            plain.set_weights(weights[step])
            means = [tf.constant(one / len(x)) for one in sums]
            count = len(plain.trainable_variables)
            plain.optimizer.apply(means[:count], plain.trainable_variables)
            for variable, change in zip(variables[count:], means[count:], strict=True):
                variable.assign_add(change)
            weights.append(plain.get_weights())
        for got, wanted in zip(model.get_weights(), weights[-1], strict=True):
            np.testing.assert_allclose(got, wanted, rtol=1e-9, atol=1e-11)
        fela.close()


@case
def of_one_version_sub_models_make_its_gradients() -> None:
    """Every rank begins with the oldest weights that it may: the updates are one process's."""

    def make() -> Any:
        keras.utils.set_random_seed(1)
        x = inputs = keras.Input((10, 10, 2))
        x = layers.Conv2D(4, 3, activation="tanh", name="conv")(x)
        x = layers.Dense(5, activation="tanh", name="wide")(layers.Flatten()(x))
        return keras.Model(inputs, layers.Dense(3)(x))

    def older(self: TokenTrainer, iteration: int, sums_changes: bool = False) -> Iteration:
        made = begin(self, iteration, sums_changes)
        versions[int(model.optimizer.iterations)] = made.values
        made.values = versions[max(iteration - 1, 0)]
        return made

    def keeping(self: Update, *args: Any) -> Any:
        told = apply(self, *args)
        training: Training = fela._training
        versions[int(model.optimizer.iterations)] = begin(training._trainer, 0).values
        return told

    versions: dict[int, Any] = {}
    begin, apply = TokenTrainer.begin, Update.apply
    with Float64():
        model, plain = make(), make()
        fela = trepak.Fela(model, ["conv", "wide"], threshold=3, weights=[1, 2, 4], staleness=1)
        model.compile(optimizer("momentum"), loss())
        TokenTrainer.begin, Update.apply = older, keeping  # type: ignore[method-assign]
        try:
            model.fit(*data(), BATCH, shuffle=False, verbose=0, callbacks=[sleeping(in_turns)])
        finally:
            TokenTrainer.begin, Update.apply = begin, apply  # type: ignore[method-assign]
        plain.compile(optimizer("momentum"), loss())
        weights = [plain.get_weights()]
        for x, y in batches_of_all():
            plain.set_weights(weights[max(len(weights) - 2, 0)])
            with tf.GradientTape() as tape:
                value = loss()(y, plain(x))
            gradients = tape.gradient(value, [v.value for v in plain.trainable_variables])
            plain.set_weights(weights[-1])
            plain.optimizer.apply_gradients(zip(gradients, plain.trainable_variables, strict=True))
            weights.append(plain.get_weights())
        for got, wanted in zip(model.get_weights(), weights[-1], strict=True):
            np.testing.assert_allclose(got, wanted, rtol=1e-9, atol=1e-11)
        fela.close()


@case
def ranks_that_sleep_in_turns_do_not_wait_for_each_other() -> None:
    """Without a staleness one sleeps after the other, so that each sleep holds up all."""
    together = []
    for staleness in (0, 3):
        keras.utils.set_random_seed(1)
        model = simple()
        fela = trepak.Fela(model, SIMPLE, threshold=6, staleness=staleness)
        model.compile(optimizer("momentum"), loss())
        model.fit(*data(), BATCH, verbose=0)  # traces
        slept: list[tuple[float, float]] = []
        trepak.barrier()
        began = time.monotonic()
        model.fit(*data(), BATCH, verbose=0, callbacks=[sleeping(in_turns, slept)])
        took = max(exchange.gather(time.monotonic() - began, "seconds"))
        sleeps = sorted(one for of_rank in exchange.gather(slept, "sleeps") for one in of_rank)
        pairs = zip(sleeps, sleeps[1:], strict=False)
        together.append(sum(begin < end for (_, end), (begin, _) in pairs))
        print(f"{STEPS} steps with a staleness of {staleness} took {took:.2f} s")
        check_equal_on_all_ranks(model)
        fela.close()
    assert together[0] == 0 < together[1], together


@case
def injected_delays_and_no_policies() -> None:
    """Ranks that sleep before their first request; the bound holds with one bucket, too."""
    for options in ({}, {"hierarchical": False, "depth_first": False}):
        keras.utils.set_random_seed(1)
        model = simple()
        fela = trepak.Fela(model, SIMPLE, threshold=2, weights=[1, 2, 4], staleness=1, **options)
        model.compile(optimizer("adam"), loss())
        injected([delay("probability", 0.2, 0.5)])
        try:
            model.fit(*data(), BATCH, verbose=0)
        finally:
            injected([])
        check_equal_on_all_ranks(model)
        assert max(everywhere(fela.statistics(), "most_stale")) <= 1
        fela.close()


@case
def state_rates_and_validation() -> None:
    """Moving statistics and rates that callbacks set are those of the iteration, on all ranks."""
    x = inputs = keras.Input((10, 10, 2))
    x = layers.Conv2D(4, 3, activation="tanh", name="conv")(x)
    x = layers.BatchNormalization(momentum=0.7, name="norm")(x)
    x = layers.Dropout(0.2)(layers.Flatten(name="flat")(x))
    model = keras.Model(inputs, layers.Dense(3)(x))
    trepak.broadcast_variables(model.variables, 0)
    fela = trepak.Fela(model, ["conv", "flat"], threshold=3, staleness=2)
    model.compile(keras.optimizers.SGD(0.01, momentum=0.9), loss())
    seen = []

    def see(epoch: int, logs: Any) -> None:
        sums = [float(one.sum()) for one in model.get_weights()]
        seen.append([int(model.optimizer.iterations), sums])

    model.fit(
        *data(),
        BATCH,
        3,
        verbose=0,
        validation_data=tuple(one[:BATCH] for one in data()),
        callbacks=[
            hvd.callbacks.BroadcastGlobalVariablesCallback(0),
            hvd.callbacks.LearningRateWarmupCallback(0.01, warmup_epochs=2),
            sleeping(the_last_rank),
            keras.callbacks.LambdaCallback(on_epoch_end=see),
        ],
    )
    check_equal_on_all_ranks(model)
    assert [one for one, _ in seen] == [STEPS, 2 * STEPS, 3 * STEPS]
    assert exchange.gather(seen, "epochs") == [seen] * trepak.size()
    fela.close()


@case
def epochs_of_one_step() -> None:
    """The first step ends before any update where a rank is ahead; it has logs all the same."""
    model = simple()
    fela = trepak.Fela(model, SIMPLE, threshold=3, staleness=2)
    model.compile(optimizer("momentum"), loss(), metrics=["accuracy"])
    pause = sleeping(lambda step: trepak.rank() == trepak.size() - 1)
    told = model.fit(*data(steps=3), BATCH, 3, verbose=0, steps_per_epoch=1, callbacks=[pause])
    assert len(told.history["loss"]) == 3 and np.isfinite(told.history["loss"]).all()
    check_equal_on_all_ranks(model)
    fela.close()


@case
def in_lockstep_none_is_ahead() -> None:
    """Who looks at weights alone would else wait for one that waits for all to agree."""
    model = simple()
    fela = trepak.Fela(model, SIMPLE, threshold=3, staleness=1)
    model.compile(optimizer("momentum"), loss())
    x, y = data()

    def look(step: int, logs: Any) -> None:
        if trepak.rank() == 0:
            model.get_weights()

    def rows() -> Iterator[tuple[Any, Any]]:
        for step in range(STEPS):
            yield x[step * BATCH : (step + 1) * BATCH], y[step * BATCH : (step + 1) * BATCH]

    callbacks = [
        hvd.callbacks.BroadcastGlobalVariablesCallback(0),
        keras.callbacks.LambdaCallback(on_train_batch_end=look),
        sleeping(in_turns),
    ]
    model.fit(rows(), verbose=0, callbacks=callbacks)
    assert everywhere(fela.statistics(), "stale_iterations") == [0] * trepak.size()
    check_equal_on_all_ranks(model)
    fela.close()


@case
def one_rank_alone_may_look_at_weights() -> None:
    """Amid an epoch it waits for the iterations that it has begun; the others may go on."""
    model = simple()
    fela = trepak.Fela(model, SIMPLE, threshold=3, staleness=1)
    model.compile(optimizer("momentum"), loss())
    seen: list[int] = []

    def look(step: int, logs: Any) -> None:
        if trepak.rank() == 0 and step % 2:
            model.get_weights()
            seen.append(int(model.optimizer.iterations) - step)

    one = keras.callbacks.LambdaCallback(on_train_batch_end=look)
    model.fit(*data(), BATCH, verbose=0, callbacks=[one, sleeping(the_last_rank)])
    with pytest.raises(ValueError, match="leave Fela's staleness at 0"):
        tuning = hvd.callbacks.FelaTuning(fela, verbose=0)
        model.fit(*data(), BATCH, verbose=0, callbacks=[tuning])
    assert seen == [1] * len(seen) and len(seen) == (STEPS // 2 if trepak.rank() == 0 else 0)
    fela.change(weights=(1, 2, 2))
    model.fit(*data(), BATCH + 3, verbose=0)
    fela.change(staleness=0)
    model.fit(*data(), BATCH, verbose=0)
    check_equal_on_all_ranks(model)
    fela.close()


@case
def a_staleness_of_nothing_is_bsp() -> None:
    check(simple, SIMPLE, threshold=2, weights=[1, 2, 4], staleness=0)

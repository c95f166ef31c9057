"""RNA's promises, on real ranks: the same rounds everywhere, and nobody waits."""

from __future__ import annotations

import random
import time
from typing import Any

import keras
import numpy as np
import tensorflow as tf
from exactness import dense_model
from harness import case

import trepak
import trepak.keras as hvd
from trepak.horovod_ext import exchange
from trepak.ops.rna import rna_counters

STEPS = 20


def batch(step: int) -> tuple[tf.Tensor, tf.Tensor]:
    rng = np.random.default_rng([step, hvd.rank()])
    return tf.constant(rng.normal(size=(8, 6)), tf.float32), tf.constant(
        rng.normal(size=(8, 3)), tf.float32
    )


def trainer(model: Any, optimizer: Any) -> Any:
    optimizer.build(model.trainable_variables)

    @tf.function
    def step(x: Any, y: Any) -> None:
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean((model(x) - y) ** 2)
        optimizer.apply(tape.gradient(loss, model.trainable_variables), model.trainable_variables)

    return step


def weights(model: Any) -> list[np.ndarray]:
    return [np.asarray(weight) for weight in model.get_weights()]


def check_equal_on_all_ranks(model: Any) -> None:
    mine = [weight.tobytes().hex() for weight in weights(model)]
    everyone = exchange.gather(mine, "weights")
    assert all(theirs == everyone[0] for theirs in everyone), "replicas have drifted apart"


OPTIMIZERS = {
    "SGD": lambda: keras.optimizers.SGD(0.05, momentum=0.9, nesterov=True),
    "Adam": lambda: keras.optimizers.Adam(0.01),
    "AdamW with a schedule": lambda: keras.optimizers.AdamW(
        keras.optimizers.schedules.ExponentialDecay(0.02, 5, 0.8), clipnorm=1.0
    ),
}


@case
def a_quorum_of_all_that_waits_is_bsp() -> None:
    for make in OPTIMIZERS.values():
        results = []
        for sync in (trepak.BSP(), trepak.RNA(quorum=hvd.size(), on_miss="wait")):
            keras.utils.set_random_seed(3)
            model = dense_model()
            optimizer = hvd.DistributedOptimizer(make(), sync=sync)
            step = trainer(model, optimizer)
            for number in range(STEPS):
                step(*batch(number))
            optimizer.flush()
            results.append(weights(model))
            assert int(optimizer.iterations) == STEPS
        for ours, theirs in zip(*results, strict=True):
            np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-6)


@case
def replicas_are_bitwise_equal_after_a_flush() -> Any:
    delays = random.Random(hvd.rank())
    keras.utils.set_random_seed(3)
    model = dense_model()
    optimizer = hvd.DistributedOptimizer(keras.optimizers.Adam(0.01), sync=trepak.RNA(seed=1))
    step = trainer(model, optimizer)
    for epoch in range(3):
        for number in range(10 + 5 * hvd.rank()):
            step(*batch(number))
            time.sleep(delays.uniform(0, 0.02))
        optimizer.flush()
        check_equal_on_all_ranks(model)
        rounds = exchange.gather(int(optimizer.iterations), "rounds")
        assert len(set(rounds)) == 1, (epoch, rounds)
    counters = rna_counters(optimizer._trepak.pace.stream)
    steps = sum(10 + 5 * hvd.rank() for _ in range(3))
    assert counters.gradients + counters.dropped == steps, counters
    assert counters.rounds == rounds[0]
    return counters._asdict()


def constant_trainer(optimizer: Any, gradient: float) -> tuple[Any, Any]:
    """Returns a variable, and a step whose gradient is always the same."""
    variable = keras.Variable(np.zeros(5, "float32"))
    optimizer.build([variable])

    @tf.function
    def step() -> None:
        optimizer.apply([gradient * tf.ones(5)], [variable])

    return variable, step


@case
def each_contribution_counts_for_its_share() -> None:
    """With plain SGD and constant gradients the weights tell how many contributions there were."""
    rate = 0.25
    optimizer = hvd.DistributedOptimizer(
        keras.optimizers.SGD(rate), sync=trepak.RNA(staleness=1000)
    )
    variable, step = constant_trainer(optimizer, hvd.rank() + 1.0)
    for _ in range(30):
        step()
        time.sleep(0.002 * hvd.rank())
    optimizer.flush()
    counters = rna_counters(optimizer._trepak.pace.stream)
    assert counters.gradients == 30 and counters.dropped == 0
    contributed = exchange.gather(counters.contributed, "contributions")
    total = sum(times * (rank + 1.0) for rank, times in enumerate(contributed))
    np.testing.assert_allclose(variable.numpy(), -rate / hvd.size() * total, rtol=1e-5)


@case
def who_misses_a_round_can_go_on_with_its_own_gradient() -> Any:
    rate, steps = 0.25, 20
    optimizer = hvd.DistributedOptimizer(
        keras.optimizers.SGD(rate), sync=trepak.RNA(staleness=1000, on_miss="local")
    )
    variable, step = constant_trainer(optimizer, 1.0)
    for _ in range(steps):
        step()
    optimizer.flush()
    check_equal_on_all_ranks_of(variable)
    counters = rna_counters(optimizer._trepak.pace.stream)
    applied = float(-variable.numpy()[0] * hvd.size() / rate)  # gradients, by all ranks together
    own = (applied - counters.contributors) * hvd.size()
    np.testing.assert_allclose(own, round(own), atol=1e-2)
    assert 0 < round(own) <= steps * hvd.size(), own
    return round(own)


@case
def eager_sgd_counts_every_gradient() -> None:
    rate = 0.25
    for mode in ("majority", "solo"):
        optimizer = hvd.DistributedOptimizer(
            keras.optimizers.SGD(rate), sync=trepak.EagerSGD(mode, seed=2)
        )
        variable, step = constant_trainer(optimizer, hvd.rank() + 1.0)
        for _ in range(10 + 10 * hvd.rank()):
            step()
        optimizer.flush()
        total = sum((10 + 10 * rank) * (rank + 1.0) for rank in range(hvd.size()))
        np.testing.assert_allclose(variable.numpy(), -rate / hvd.size() * total, rtol=1e-5)


def fit_in_global_epochs(
    model: Any, optimizer: Any, more: Any = ()
) -> tuple[list[int], list[float]]:
    """Trains for three epochs, on ranks of uneven speed.

    Returns:
        By rank, the number of its steps; by epoch, the loss of validation.
    """
    model.compile(optimizer, loss="mse", jit_compile=False)
    x, y = (np.concatenate(parts) for parts in zip(*(batch(i) for i in range(4)), strict=True))
    dataset = tf.data.Dataset.from_tensor_slices((x, y)).shuffle(32).batch(8)
    steps = []

    def pause(number: int, logs: Any) -> None:
        steps.append(number)
        time.sleep(0.01 + 0.02 * hvd.rank())

    history = model.fit(
        trepak.global_epochs(dataset, samples=400),
        epochs=3,
        validation_data=(x, y),
        callbacks=[
            hvd.callbacks.BroadcastGlobalVariablesCallback(0),
            hvd.callbacks.MetricAverageCallback(),
            keras.callbacks.LambdaCallback(on_train_batch_end=pause),
            *more,
        ],
        verbose=0,
    )
    return exchange.gather(len(steps), "steps"), history.history["val_loss"]


@case
def epochs_are_of_all_ranks_together() -> Any:
    keras.utils.set_random_seed(3)
    model = dense_model()
    optimizer = hvd.DistributedOptimizer(keras.optimizers.SGD(0.01), sync=trepak.RNA(seed=4))
    rounds: list[int] = []
    look = keras.callbacks.LambdaCallback(
        on_epoch_end=lambda epoch, logs: rounds.append(int(optimizer.iterations))
    )
    monitor = trepak.callbacks.StragglerMonitor(every=1, verbose=int(hvd.rank() == 0))
    steps, losses = fit_in_global_epochs(model, optimizer, [look, monitor])
    check_equal_on_all_ranks(model)
    reports = monitor.table.reports()
    counters = rna_counters(optimizer._trepak.pace.stream)
    mine = reports[hvd.rank()]
    assert mine.rounds == counters.rounds == rounds[-1]
    np.testing.assert_allclose(mine.null_share, 1 - counters.contributed / counters.rounds)
    assert [one.contributors for one in reports] == [reports[0].contributors] * hvd.size()
    shares = sum(1 - one.null_share for one in reports)
    np.testing.assert_allclose(reports[0].contributors, shares, rtol=1e-6)
    assert "brought" in monitor.table.verdict()
    assert len(rounds) == 3
    assert all(theirs == rounds for theirs in exchange.gather(rounds, "rounds")), rounds
    assert losses[-1] < losses[0], losses
    assert abs(sum(steps) - 3 * 400 / 8) <= 6 * hvd.size(), steps
    return steps


@case
def a_warm_up_does_not_part_replicas() -> None:
    keras.utils.set_random_seed(3)
    model = dense_model()
    optimizer = hvd.DistributedOptimizer(
        keras.optimizers.SGD(0.01, momentum=0.9), sync=trepak.RNA(seed=4)
    )
    warm_up = hvd.callbacks.LearningRateWarmupCallback(0.01, warmup_epochs=2, steps_per_epoch=10)
    fit_in_global_epochs(model, optimizer, [warm_up])
    check_equal_on_all_ranks(model)


@case
def later_epochs_have_steps_of_their_own() -> Any:
    keras.utils.set_random_seed(3)
    model = dense_model()
    optimizer = hvd.DistributedOptimizer(keras.optimizers.SGD(0.01), sync=trepak.RNA(seed=4))
    model.compile(optimizer, loss="mse", jit_compile=False)
    dataset = tf.data.Dataset.from_tensor_slices(batch(0)).repeat().batch(8)
    steps = [0, 0, 0]
    epoch = -1

    def begin(number: int, logs: Any) -> None:
        nonlocal epoch
        epoch = number

    def pause(number: int, logs: Any) -> None:
        steps[epoch] += 1
        is_fast = hvd.rank() == epoch % 2  # another rank in each epoch
        time.sleep(0.02 if is_fast else 0.1)

    model.fit(
        trepak.global_epochs(dataset, samples=480).prefetch(1),
        epochs=3,
        callbacks=[
            hvd.callbacks.BroadcastGlobalVariablesCallback(0),
            keras.callbacks.LambdaCallback(on_epoch_begin=begin, on_train_batch_end=pause),
        ],
        verbose=0,
    )
    by_rank = exchange.gather(steps, "steps")
    for number in range(3):
        fast, slow = by_rank[number % 2], by_rank[1 - number % 2]
        assert fast[number] > 2 * slow[number], by_rank
        assert abs(sum(one[number] for one in by_rank) - 480 / 8) <= 6 * hvd.size(), by_rank
    return by_rank


@case
def metrics_count_what_was_trained_with() -> None:
    """Batches of a size that is known beforehand, and an end of an epoch that is not."""
    keras.utils.set_random_seed(3)
    model = dense_model()
    optimizer = hvd.DistributedOptimizer(keras.optimizers.SGD(0.01), sync=trepak.RNA(seed=4))

    def one(y_true: Any, y_pred: Any) -> Any:
        return tf.cast(tf.abs(y_pred[:, 0]) >= 0, tf.float32)

    model.compile(optimizer, loss="mse", metrics=[one], jit_compile=False)
    dataset = tf.data.Dataset.from_tensor_slices(batch(0)).repeat().batch(8, drop_remainder=True)
    history = model.fit(
        trepak.global_epochs(dataset, samples=160),
        epochs=2,
        callbacks=[hvd.callbacks.BroadcastGlobalVariablesCallback(0)],
        verbose=0,
    )
    np.testing.assert_allclose(history.history["one"], 1.0)


def check_that_nobody_waits(sync: Any) -> None:
    """Trains with a last rank that is much slower than the others."""
    slow, steps = 0.3, 30
    keras.utils.set_random_seed(3)
    model = dense_model()
    optimizer = hvd.DistributedOptimizer(keras.optimizers.SGD(0.01), sync=sync)
    step = trainer(model, optimizer)
    step(*batch(0))
    hvd.barrier()
    began = time.monotonic()
    is_slow = hvd.rank() == hvd.size() - 1
    for number in range(2 if is_slow else steps):
        if is_slow:
            time.sleep(slow)
        step(*batch(number))
    seconds = time.monotonic() - began
    optimizer.flush()
    check_equal_on_all_ranks(model)
    assert is_slow or seconds < steps * slow / 3, seconds


@case
def nobody_waits_for_a_slow_rank() -> None:
    check_that_nobody_waits(trepak.RNA(choices=hvd.size()))


@case
def gradients_that_are_not_finite_contribute_nothing() -> None:
    variable = keras.Variable(np.zeros(3, "float32"))
    optimizer = hvd.DistributedOptimizer(keras.optimizers.SGD(1.0), sync=trepak.RNA())
    optimizer.build([variable])
    for value in (float("nan"), float("inf")):
        if hvd.rank() == 0:
            optimizer.apply([tf.fill([3], value)], [variable])
    if hvd.rank() != 0:
        optimizer.apply([tf.ones(3)], [variable])
    optimizer.flush()
    assert np.isfinite(variable.numpy()).all()
    counters = rna_counters(optimizer._trepak.pace.stream)
    assert counters.not_finite == (2 if hvd.rank() == 0 else 0)
    assert optimizer._trepak.pace.rounds().not_finite == counters.not_finite  # StragglerMonitor's
    check_equal_on_all_ranks_of(variable)


def check_equal_on_all_ranks_of(variable: Any) -> None:
    everyone = exchange.gather(variable.numpy().tobytes().hex(), "a variable")
    assert len(set(everyone)) == 1


@case
def wrong_use_is_explained() -> None:
    first, second = (keras.Variable(np.zeros(2, "float32"), name=name) for name in ("a", "b"))
    optimizer = hvd.DistributedOptimizer(keras.optimizers.SGD(1.0), sync=trepak.RNA())
    optimizer.build([first, second])
    optimizer.apply([tf.ones(2), None], [first, second])
    expect(
        "the first step's 1 variables",
        lambda: optimizer.apply([tf.ones(2), tf.ones(2)], [first, second]),
    )
    expect(
        "no gradients of one step",
        lambda: optimizer.compute_gradients(lambda: tf.reduce_sum(first.value**2), [first]),
    )
    optimizer.flush()
    other = hvd.DistributedOptimizer(
        keras.optimizers.SGD(1.0), sync=trepak.RNA(quorum=hvd.size() + 1)
    )
    expect('on_miss must be "skip"', lambda: trepak.RNA(on_miss="later"))
    expect('only "skip"', lambda: trepak.RNA(on_miss="wait", groups="auto"))
    expect("answers can't come from", lambda: other.apply([tf.ones(2)], [first]))


def expect(message: str, call: Any) -> None:
    try:
        call()
    except ValueError as error:
        assert message in str(error), error
    else:
        raise AssertionError(f"nothing was raised that says {message!r}")

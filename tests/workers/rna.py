"""RNA's promises, on real ranks: the same rounds everywhere, and nobody waits."""

from __future__ import annotations

import random
import time
from typing import Any

import keras
import numpy as np
import tensorflow as tf
from exactness import dense_model
from harness import case, counted

import trepak
import trepak.keras as hvd
from trepak.horovod_ext import exchange
from trepak.ops import rna as native

STEPS = 20
SEED_OF_RANK_0 = 1  # with which the one of two ranks that is probed is rank 0 in the first rounds


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
def gradients_of_several_passes_are_one_contribution() -> None:
    results = []
    for sync in (trepak.RNA(quorum=hvd.size(), on_miss="wait"), trepak.BSP()):
        keras.utils.set_random_seed(3)
        model = dense_model()
        optimizer = hvd.DistributedOptimizer(
            keras.optimizers.SGD(0.05, momentum=0.9), sync=sync, backward_passes_per_step=2
        )
        step = trainer(model, optimizer)
        for number in range(STEPS):
            step(*batch(number))
        optimizer.flush()
        results.append(weights(model))
        if isinstance(sync, trepak.RNA):
            assert counted(optimizer).rounds == STEPS / 2
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
    counters = counted(optimizer)
    steps = sum(10 + 5 * hvd.rank() for _ in range(3))
    assert counters.gradients + counters.dropped == steps, counters
    assert counters.rounds == rounds[0]
    return vars(counters)


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
    counters = counted(optimizer)
    assert counters.gradients == 30 and counters.dropped == 0
    contributed = exchange.gather(counters.contributed, "contributions")
    total = sum(times * (rank + 1.0) for rank, times in enumerate(contributed))
    np.testing.assert_allclose(variable.numpy(), -rate / hvd.size() * total, rtol=1e-5)


@case
def figure_five_one_is_replayed() -> Any:
    """As rna_worker_test.cc does without TensorFlow: rank 0 starts each round, with this seed."""
    if hvd.size() != 2:
        return "for two ranks"
    optimizer = hvd.DistributedOptimizer(
        keras.optimizers.SGD(0.5), sync=trepak.RNA(choices=1, seed=SEED_OF_RANK_0)
    )
    x = keras.Variable(np.full(1, 64.0, "float32"))
    optimizer.build([x])
    ended = optimizer._trepak.step
    optimizer._trepak.agree(optimizer)
    optimizer._trepak.reducer.agree([x.value], [x])
    ended._start(optimizer, [x.value], [x])  # what comes before the first gradient

    def step(rank: int, rate: float, ends_round: int | None = None) -> None:
        """Takes a step on one rank: the gradient of rank 0 is x, that of rank 1 is 3 x."""
        if hvd.rank() == rank:
            optimizer.learning_rate = rate
            optimizer.apply([x.value * (1.0 + 2 * rank)], [x])
        began = time.monotonic()
        while counted(optimizer).rounds < (ends_round or 0) and time.monotonic() < began + 20:
            time.sleep(0.001)
        exchange.gather(None, "that a step has ended")

    def apply(rounds: int, expected: float) -> None:
        while int(native.finished_rounds(ended.session)) > 0:
            ended._apply_one(optimizer)
        assert int(optimizer.iterations) == rounds
        np.testing.assert_allclose(x.numpy(), expected, rtol=1e-6)

    step(0, 0.5, ends_round=1)  # a null gradient of rank 1 lowers the rate, and not the mean
    if hvd.rank() == 0:
        apply(1, 48.0)
    step(1, 0.5)  # of 64: it applies the round now
    apply(1, 48.0)
    step(1, 0.25)  # of 48
    step(0, 0.5, ends_round=2)  # of 48, and of (1 * 192 + 2 * 144) / 3
    apply(2, 9.0)
    step(1, 0.25)
    step(0, 0.25, ends_round=3)  # of 9 and of 27
    apply(3, 4.5)
    counters = counted(optimizer)
    assert (counters.contributed, counters.gradients) == ((3, 3), (2, 3))[hvd.rank()], counters
    optimizer.flush()
    return vars(counters)


@case
def schedules_go_on_by_the_share_of_ranks() -> Any:
    """Not by rounds, of which there are more where some ranks are late."""
    schedule = keras.optimizers.schedules.PolynomialDecay(1.0, 1000, 0.0)
    optimizer = hvd.DistributedOptimizer(
        keras.optimizers.SGD(schedule), sync=trepak.RNA(choices=hvd.size(), staleness=1000)
    )
    _, step = constant_trainer(optimizer, 1.0)
    for _ in range(40 if hvd.rank() == 0 else 5):
        step()
        time.sleep(0.005)
    optimizer.flush()
    rounds = optimizer._trepak.step
    counters = counted(optimizer)
    contributed = exchange.gather(counters.contributed, "contributions")
    progress = sum(contributed) / hvd.size()
    assert progress < 0.9 * counters.rounds, "only some ranks have brought gradients"
    np.testing.assert_allclose(float(rounds._rate(optimizer)), 1 - int(progress + 1e-9) / 1000)
    return [progress, counters.rounds]


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
    counters = counted(optimizer)
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


def check_that_nobody_waits(sync: Any) -> None:
    """Trains with a last rank that takes its steps after all those of the others.

    It does not begin before these have ended theirs: had they to wait for it, they never would.
    """
    keras.utils.set_random_seed(3)
    model = dense_model()
    optimizer = hvd.DistributedOptimizer(keras.optimizers.SGD(0.01), sync=sync)
    step = trainer(model, optimizer)
    step(*batch(0))
    hvd.barrier()
    is_last = hvd.rank() == hvd.size() - 1
    if is_last:
        exchange.gather(None, "that the others have taken their steps")
    for number in range(2 if is_last else 30):
        step(*batch(number))
    if not is_last:
        exchange.gather(None, "that the others have taken their steps")
    optimizer.flush()
    check_equal_on_all_ranks(model)


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
    counters = counted(optimizer)
    assert counters.not_finite == (2 if hvd.rank() == 0 else 0)
    assert optimizer._trepak.step.rounds().not_finite == counters.not_finite  # StragglerMonitor's
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


def expect_the_same_variables_in_each_step(sync: Any) -> None:
    first, second = (keras.Variable(np.zeros(2, "float32"), name=name) for name in ("a", "b"))
    optimizer = hvd.DistributedOptimizer(keras.optimizers.SGD(1.0), sync=sync)
    optimizer.build([first, second])
    optimizer.apply([tf.ones(2)], [first])
    expect(
        "with 'b' float32 [2] where 'a' float32 [2] was",
        lambda: optimizer.apply([tf.ones(2)], [second]),
    )
    optimizer.flush()
    np.testing.assert_allclose(first.numpy(), -1.0, rtol=1e-5)


def expect(message: str, call: Any) -> None:
    try:
        call()
    except ValueError as error:
        assert message in str(error), error
    else:
        raise AssertionError(f"nothing was raised that says {message!r}")

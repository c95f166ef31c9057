"""Loss scaling over several passes and ranks, against Keras' own over their mean gradients."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import keras
import numpy as np
import tensorflow as tf
from harness import case

import trepak.keras as hvd

STEPS, PASSES = 6, 2
SCALE = 1024.0
OVERFLOWS: list[set[int]] = [set(), {1}, {0, 1, 4}, {0, 1, 2}]  # the steps that have one
Scaled = keras.optimizers.LossScaleOptimizer


def adam(**options: Any) -> Any:
    return keras.optimizers.Adam(0.1, **options)


def scheduled(**options: Any) -> Any:
    rate = keras.optimizers.schedules.PiecewiseConstantDecay([1, 2, 3], [1.0, 0.1, 0.01, 0.001])
    return keras.optimizers.SGD(rate, **options)


def averaging_ema() -> Any:
    return keras.optimizers.SGD(0.5, use_ema=True, ema_momentum=0.5, ema_overwrite_frequency=2)


def wrap(optimizer: Any) -> Any:
    return hvd.DistributedOptimizer(
        optimizer, backward_passes_per_step=PASSES, average_aggregated_gradients=True
    )


# The two ways to write it; model.compile() does as the second.
PLACES: dict[str, Callable[[Any], Any]] = {
    "around a LossScaleOptimizer": lambda plain: wrap(Scaled(plain, SCALE)),
    "inside a LossScaleOptimizer": lambda plain: Scaled(wrap(plain), SCALE),
}


def gradients() -> Any:
    """Returns them as [steps, passes, rank, 2]: with two ranks, means are exact."""
    eighths = np.random.default_rng(0).integers(-8, 9, (STEPS, PASSES, hvd.size(), 2))
    return (eighths / 8).astype("float32")


def scaled(gradient: Any, optimizer: Any, spoilt: bool) -> Any:
    scale = float(optimizer.dynamic_scale) if optimizer.built else optimizer.initial_scale
    return tf.constant(gradient * np.float32(scale) * np.float32(np.inf if spoilt else 1))


def state(optimizer: Any) -> tuple[float, float]:
    return float(optimizer.dynamic_scale), float(optimizer.learning_rate)


def check_steps(make: Callable[[], Any], place: str, skipped: set[int]) -> None:
    told = f"{make.__name__} {place}, overflows in steps {skipped}"
    v, w = keras.Variable([1.0, 2.0]), keras.Variable([1.0, 2.0])
    plain, ours = Scaled(make(), SCALE), PLACES[place](make())
    for step, passes in enumerate(gradients()):
        plain.apply([scaled(passes.mean((0, 1)), plain, step in skipped)], [v])
        for number, of_ranks in enumerate(passes):
            # On one rank alone, in the first or the last of the passes.
            spoilt = step in skipped and number == step % PASSES and hvd.rank() == step % hvd.size()
            ours.apply([scaled(of_ranks[hvd.rank()], ours, spoilt)], [w])
            if number < PASSES - 1:
                mid = PASSES * (step - len(skipped & set(range(step)))) + number + 1
                assert int(ours.iterations) == mid, told
        np.testing.assert_allclose(w.numpy(), v.numpy(), rtol=1e-6, err_msg=f"{told}: {step}")
        assert state(ours) == state(plain), told
        assert int(ours.iterations) == PASSES * int(plain.iterations), told


@case
def passes_of_skipped_steps_do_not_count() -> Any:
    for make in (adam, scheduled, averaging_ema):
        for place in PLACES:
            for skipped in OVERFLOWS:
                check_steps(make, place, skipped)


@case
def in_a_compiled_model() -> Any:
    """model.compile() wraps the optimizer; fit traces the step."""
    for make in (adam, scheduled):
        for skipped in OVERFLOWS:
            keras.config.set_dtype_policy("mixed_float16")
            layer = keras.layers.Dense(1, use_bias=False, kernel_initializer="ones")
            model = keras.Sequential([keras.Input((2,)), layer])
            keras.config.set_dtype_policy("float32")
            model.compile(wrap(make()), loss=lambda y, predicted: predicted * y)  # gradient: x · y
            every = gradients()
            x = every[:, :, hvd.rank()].reshape(-1, 2)
            y = np.ones((len(x), 1), "float32")
            if hvd.rank() == hvd.size() - 1:
                y[[PASSES * step + step % PASSES for step in skipped]] = np.inf
            model.fit(x, y, batch_size=1, shuffle=False, verbose=0)
            v = keras.Variable([1.0, 1.0])
            plain = Scaled(make(), model.optimizer.initial_scale)
            for step, passes in enumerate(every):
                plain.apply([scaled(passes.mean((0, 1)), plain, step in skipped)], [v])
            told = f"{make.__name__}, overflows in steps {skipped}"
            np.testing.assert_allclose(layer.kernel[:, 0], v.numpy(), rtol=1e-6, err_msg=told)
            assert state(model.optimizer) == state(plain), told
            assert int(model.optimizer.iterations) == PASSES * int(plain.iterations), told


@case
def with_keras_own_accumulation() -> Any:
    """There an overflow drops one pass, which is not counted: ours does as the plain one."""
    for make in (adam, scheduled):
        for skipped in OVERFLOWS:
            v, w = keras.Variable([1.0, 2.0]), keras.Variable([1.0, 2.0])
            plain = Scaled(make(gradient_accumulation_steps=2), SCALE)
            ours = hvd.DistributedOptimizer(Scaled(make(gradient_accumulation_steps=2), SCALE))
            for step, of_ranks in enumerate(gradients().reshape(-1, hvd.size(), 2)):
                spoilt = step in skipped
                plain.apply([scaled(of_ranks.mean(0), plain, spoilt)], [v])
                spoilt = spoilt and hvd.rank() == 0
                ours.apply([scaled(of_ranks[hvd.rank()], ours, spoilt)], [w])
                np.testing.assert_allclose(w.numpy(), v.numpy(), rtol=1e-6)
                assert state(ours) == state(plain)
                assert int(ours.iterations) == int(plain.iterations)


def real_steps(optimizer: Any, variable: Any, steps: int) -> list[float]:
    """Takes real steps with gradients of 1; returns how far each went: the learning rates."""
    moved = []
    for _ in range(steps):
        before = float(variable[0])
        for _ in range(PASSES):
            optimizer.apply([scaled(np.ones(1, "float32"), optimizer, False)], [variable])
        moved.append(round(before - float(variable[0]), 5))
    return moved


@case
def what_is_saved_goes_on_from_its_real_steps() -> Any:
    """Also in the midst of a step, whose sums no file holds."""
    v = keras.Variable([0.0])
    first = PLACES["around a LossScaleOptimizer"](scheduled())
    real_steps(first, v, 1)
    for _ in range(PASSES):
        first.apply([tf.constant([np.inf])], [v])
    assert int(first.iterations) == PASSES
    assert real_steps(first, v, 1) == [1.0]
    first.apply([scaled(np.ones(1, "float32"), first, False)], [v])
    assert int(first.iterations) == 2 * PASSES + 1
    path = os.path.join(os.environ["OUT"], f"scaled-{hvd.rank()}")
    saved = tf.train.Checkpoint(optimizer=first, v=v).save(path)
    for place in PLACES:
        w = keras.Variable([0.0])
        second = PLACES[place](scheduled())
        second.build([w])
        for mine, theirs in zip(second.variables, first.variables, strict=True):
            mine.assign(theirs)
        assert real_steps(second, w, 3) == [0.1, 0.01, 0.001], place
        assert int(second.iterations) == 5 * PASSES
    third, w = PLACES["around a LossScaleOptimizer"](scheduled()), keras.Variable([0.0])
    third.build([w])
    tf.train.Checkpoint(optimizer=third, v=w).restore(saved).assert_existing_objects_matched()
    assert real_steps(third, w, 3) == [0.1, 0.01, 0.001]


@case
def a_saved_model_keeps_its_real_steps() -> Any:
    layer = keras.layers.Dense(1, use_bias=False, kernel_initializer="ones")
    model = keras.Sequential([keras.Input((2,)), layer])
    model.compile(PLACES["around a LossScaleOptimizer"](scheduled()), loss="mse")
    x = np.ones((2 * PASSES, 2), "float32")
    y = np.zeros((2 * PASSES, 1), "float32")
    y[0] = np.inf
    model.fit(x, y, batch_size=1, shuffle=False, verbose=0)  # a step that is skipped, and one
    path = os.path.join(os.environ["OUT"], f"scaled-{hvd.rank()}.keras")
    model.save(path)
    loaded = keras.saving.load_model(path)
    assert int(loaded.optimizer.iterations) == PASSES
    loaded.compile(wrap(loaded.optimizer), loss="mse")
    assert float(loaded.optimizer.learning_rate) == float(model.optimizer.learning_rate) == 1.0
    for one in (model, loaded):
        one.fit(x, np.zeros_like(y), batch_size=1, shuffle=False, verbose=0)
    np.testing.assert_array_equal(loaded.get_weights()[0], model.get_weights()[0])
    assert int(loaded.optimizer.iterations) == 3 * PASSES

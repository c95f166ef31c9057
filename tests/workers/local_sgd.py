"""Local SGD: what K ranks do together is what one process does that trains K tasks by turns."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import keras
import numpy as np
import tensorflow as tf
from exactness import custom_step_model, dense_model, embedding_model, unused_model
from harness import case
from rna import check_equal_on_all_ranks, weights

import trepak
import trepak.keras as hvd

STEPS, EPOCHS = 10, 2
RTOL, ATOL = 1e-5, 1e-6
Batches = list[tuple[np.ndarray, np.ndarray]]


def shard(rank: int, rows: int = 4, steps: int = STEPS, ids: bool = False) -> Batches:
    """Returns a rank's batches of an epoch: of `rows`, and the last of 1, 2, … by rank."""
    rng = np.random.default_rng([11, rank])
    sizes = [rows] * (steps - 1) + [rank + 1]
    return [
        (
            rng.integers(0, 30, (size, 5)).astype("int32")
            if ids
            else rng.normal(size=(size, 6)).astype("float32"),
            rng.normal(size=(size, 3)).astype("float32"),
        )
        for size in sizes
    ]


def joined(batches: Batches) -> tuple[Any, Any]:
    x, y = zip(*batches, strict=True)
    return np.concatenate(x), np.concatenate(y)


class Task:
    """One of K tasks, which one process trains by turns: a model and a plain optimizer."""

    def __init__(self, model: Any, optimizer: Any) -> None:
        self.model, self.optimizer = model, optimizer
        self.samples = 0
        optimizer.build(model.trainable_variables)

    def step(self, batches: Batches) -> None:
        """Takes a step with several batches as one."""
        x, y = joined(batches)
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean((tf.cast(self.model(x, training=True), "float32") - y) ** 2)
        grads = tape.gradient(loss, self.model.trainable_variables)
        dense = [None if grad is None else tf.convert_to_tensor(grad) for grad in grads]
        self.optimizer.apply(dense, self.model.trainable_variables)
        self.samples += len(x)

    def held(self) -> list[Any]:
        """Returns the variables that are averaged."""
        rate = self.optimizer._learning_rate
        state = [v for v in self.optimizer.variables if "float" in v.dtype and v is not rate]
        return [*self.model.trainable_variables, *state]


def average(tasks: list[Task]) -> None:
    """Gives all tasks the mean of their variables, by NumPy in float64, weighted by samples."""
    shares = np.array([task.samples for task in tasks], "float64")
    shares /= shares.sum()
    for variables in zip(*(task.held() for task in tasks), strict=True):
        values = np.stack([np.asarray(v, "float64") for v in variables])
        mean = np.tensordot(shares, values, axes=1)
        for variable in variables:
            variable.assign(mean)
    for task in tasks:
        task.samples = 0
        for variable in task.model.trainable_variables:
            if variable.constraint is not None:
                variable.assign(variable.constraint(variable))


def in_one_process(h: int, make: Callable[[float], Any], model_of: Any, ids: bool = False) -> Task:
    """Trains K tasks as K ranks do; returns one of them, all of which are the same in the end."""
    size = hvd.size()
    tasks = [Task(same(model_of), make(math.sqrt(size))) for _ in range(size)]
    shards = [shard(rank, ids=ids) for rank in range(size)]
    for _ in range(EPOCHS):
        for number in range(STEPS):
            for task, batches in zip(tasks, shards, strict=True):
                task.step([batches[number]])
            if (number + 1) % h == 0 or number + 1 == STEPS:  # what is left, at an epoch's end
                average(tasks)
    tasks[0].optimizer.finalize_variable_values(tasks[0].model.trainable_variables)
    return tasks[0]


def same(model_of: Callable[[], Any]) -> Any:
    keras.utils.set_random_seed(3)
    return model_of()


def fitted(
    optimizer: Any, model_of: Any = dense_model, ids: bool = False, callbacks: Any = (), **how: Any
) -> Any:
    """Trains this rank's shard by `fit`; returns the model."""
    model = same(model_of)
    model.compile(optimizer, loss="mse", jit_compile=False, **how)
    x, y = joined(shard(hvd.rank(), ids=ids))
    broadcast = hvd.callbacks.BroadcastGlobalVariablesCallback(0)
    options: dict[str, Any] = {"batch_size": 4, "shuffle": False, "verbose": 0}
    model.fit(x, y, epochs=EPOCHS, callbacks=[broadcast, *callbacks], **options)
    check_equal_on_all_ranks(model)
    return model


def check_close(ours: Any, theirs: Any, rtol: float = RTOL, atol: float = ATOL) -> None:
    for one, other in zip(ours, theirs, strict=True):
        np.testing.assert_allclose(np.asarray(one), np.asarray(other), rtol=rtol, atol=atol)


SGD, Adam = keras.optimizers.SGD, keras.optimizers.Adam
SGDS: dict[str, Callable[[], Any]] = {
    "SGD": lambda: SGD(0.05),
    "momentum": lambda: SGD(0.05, momentum=0.9),
    "Nesterov": lambda: SGD(0.05, momentum=0.9, nesterov=True),
}


@case
def one_step_between_averages_is_bsp() -> None:
    """Where all batches are of one size: BSP gives each rank's mean gradient the same weight."""
    x, y = joined(shard(hvd.rank())[:-1])
    for make in SGDS.values():
        models = []
        for sync in (trepak.BSP(), trepak.LocalSGD(H=1, scale_learning_rate=False)):
            model = same(dense_model)
            optimizer = hvd.DistributedOptimizer(make(), sync=sync)
            model.compile(optimizer, loss="mse", jit_compile=False)
            model.fit(x, y, batch_size=4, epochs=EPOCHS, shuffle=False, verbose=0)
            models.append(model)
        check_close(*(model.get_weights() for model in models))
        check_close(*(model.optimizer.variables for model in models))
        assert models[1].optimizer._trepak.step.averages == EPOCHS * (STEPS - 1)


@case
def samples_weigh_alike_in_batches_of_any_size() -> Any:
    """As in one process that takes all ranks' samples as one batch, and not as with BSP."""
    for make in (SGDS["SGD"], SGDS["momentum"]):
        task = Task(same(dense_model), make())
        for _ in range(EPOCHS):
            for batches in zip(*map(shard, range(hvd.size())), strict=True):
                task.step(list(batches))
        sync = trepak.LocalSGD(H=1, scale_learning_rate=False)
        model = fitted(hvd.DistributedOptimizer(make(), sync=sync))
        check_close(weights(model), weights(task.model))
        bsp = fitted(hvd.DistributedOptimizer(make()))
        apart = max(
            float(np.max(np.abs(ours - theirs)))
            for ours, theirs in zip(weights(bsp), weights(task.model), strict=True)
        )
        assert apart > 1e-4, apart
    return apart


class Feature(NamedTuple):
    """What is trained both ways.

    Attributes:
        make: makes the optimizer, whose learning rate is multiplied by a factor.
        model_of: makes the model.
        h: steps between averages.
        ids: the model takes integers.
        how: further options of `compile`.
        tolerance: relative and absolute.
    """

    make: Callable[[float], Any]
    model_of: Callable[[], Any] = dense_model
    h: int = 4
    ids: bool = False
    how: dict[str, Any] = {}
    tolerance: tuple[float, float] = (RTOL, ATOL)


def scheduled(factor: float) -> Any:
    return keras.optimizers.schedules.ExponentialDecay(0.02 * factor, 5, 0.8)


def constrained_model() -> Any:
    unit = keras.constraints.UnitNorm()
    return keras.Sequential([keras.Input((6,)), keras.layers.Dense(3, kernel_constraint=unit)])


def narrow_model() -> Any:
    layers = [keras.layers.Dense(8, activation="tanh"), keras.layers.Dense(3, dtype="float32")]
    layers[0].dtype_policy = keras.dtype_policies.DTypePolicy("mixed_bfloat16")
    return keras.Sequential([keras.Input((6,)), *layers])


FEATURES: dict[str, Feature] = {
    "SGD": Feature(lambda f: SGD(0.05 * f)),
    "momentum": Feature(lambda f: SGD(0.05 * f, momentum=0.9)),
    "momentum, eager": Feature(
        lambda f: SGD(0.05 * f, momentum=0.9), h=3, how={"run_eagerly": True}
    ),
    "Adam": Feature(lambda f: Adam(0.01 * f)),
    "AdamW, schedule": Feature(lambda f: keras.optimizers.AdamW(scheduled(f), clipnorm=0.1)),
    "weight decay": Feature(lambda f: SGD(0.05 * f, momentum=0.9, weight_decay=0.02)),
    "EMA": Feature(lambda f: SGD(0.05 * f, use_ema=True, ema_overwrite_frequency=3)),
    "embedding": Feature(lambda f: Adam(0.01 * f), embedding_model, ids=True),
    "no gradient": Feature(lambda f: SGD(0.05 * f, momentum=0.9), unused_model),
    "constraint": Feature(lambda f: SGD(0.05 * f), constrained_model),
    "own train_step": Feature(lambda f: Adam(0.01 * f), custom_step_model),
    "steps in blocks": Feature(lambda f: Adam(0.01 * f), h=3, how={"steps_per_execution": 5}),
    # What bfloat16 rounds may be rounded to the other side.
    "bfloat16": Feature(lambda f: SGD(0.05 * f), narrow_model, tolerance=(1e-2, 1e-2)),
}


@case
def ranks_do_what_tasks_of_one_process_do() -> None:
    """With the rate of all tasks, and batches of several sizes."""
    for name, feature in FEATURES.items():
        task = in_one_process(feature.h, feature.make, feature.model_of, ids=feature.ids)
        sync = trepak.LocalSGD(H=feature.h)
        optimizer = hvd.DistributedOptimizer(feature.make(1.0), sync=sync)
        model = fitted(optimizer, feature.model_of, feature.ids, **feature.how)
        try:
            check_close(weights(model), weights(task.model), *feature.tolerance)
            state = [v for v in optimizer.variables if v is not optimizer._learning_rate]
            theirs = [v for v in task.optimizer.variables if v is not task.optimizer._learning_rate]
            check_close(state, theirs, *feature.tolerance)
        except AssertionError as error:
            raise AssertionError(f"{name}: {error}") from error
        assert int(optimizer.iterations) == STEPS * EPOCHS
        averages = EPOCHS * math.ceil(STEPS / feature.h)
        assert optimizer._trepak.step.averages == averages
        counted = optimizer.statistics()
        samples = EPOCHS * sum(len(x) for x, _ in shard(hvd.rank()))
        assert (counted["averages"], counted["steps"]) == (averages, STEPS * EPOCHS), counted
        assert counted["samples"] == samples and counted["bytes"] > 0, counted


@case
def several_passes_make_one_step() -> None:
    """Their samples count, too; H counts steps."""
    x, y = joined(shard(hvd.rank())[:8])
    models = []
    options = {"backward_passes_per_step": 2, "average_aggregated_gradients": True}
    for sync in (trepak.BSP(), trepak.LocalSGD(H=1, scale_learning_rate=False)):
        model = same(dense_model)
        optimizer = hvd.DistributedOptimizer(SGDS["momentum"](), sync=sync, **options)
        model.compile(optimizer, loss="mse", jit_compile=False)
        model.fit(x, y, batch_size=4, epochs=EPOCHS, shuffle=False, verbose=0)
        models.append(model)
    check_close(*(model.get_weights() for model in models))
    counted = models[1].optimizer.statistics()
    assert (counted["averages"], counted["steps"], counted["samples"]) == (8, 8, 64), counted

"""Local SGD in the bench of Chicle is what Keras makes of the same batches."""

from __future__ import annotations

import math
from typing import Any

import keras
import numpy as np
import pytest

from trepak.models.builder import Builder
from trepak.models.convnet import convnet
from trepak.models.images import CIFAR_SHAPE, FASHION_SHAPE, fashion_shaped
from trepak.scripts.bench.chicle_cases import CASES, MICRO_TASKS
from trepak.scripts.bench.chicle_local_sgd import MOMENTUM, LocalSgdTrainer, Schedule
from trepak.tf_plugins.chicle.cluster import OneProcess
from trepak.tf_plugins.chicle.cutting import Cutting
from trepak.tf_plugins.chicle.drawing import DRAWN, Draws
from trepak.tf_plugins.chicle.moving import Tasks
from trepak.tf_plugins.chicle.placing import place
from trepak.tf_plugins.chicle.trainer import Iteration
from trepak.tf_plugins.chicle.training import Training

SAMPLES, STEPS, BATCH, RATE, SEED = 48, 3, 4, 0.05, 7
SCHEDULE = Schedule(SAMPLES, STEPS, BATCH)


def two_tasks() -> Tasks:
    """Returns tasks of which one has two thirds of the samples."""
    images, classes = fashion_shaped(SAMPLES)
    placed = place(Cutting({"x": images, "y": classes}, [DRAWN], 14_000), 2, OneProcess(), SEED)
    assert [placed.stores[task].samples for task in range(2)] == [32, 16]
    return placed


def trainer(iterations: int = 2) -> LocalSgdTrainer:
    """Returns one of so many iterations."""
    return LocalSgdTrainer(SCHEDULE, fashion_shaped(20, seed=1), RATE, 0.0, iterations, SEED)


def keras_steps(model: list[Any], samples: Any, sizes: Any) -> tuple[list[Any], list[Any]]:
    """Returns weights and momenta of Keras' own momentum SGD after a step on each batch."""
    network = convnet(Builder(), FASHION_SHAPE)
    optimizer = keras.optimizers.SGD(RATE * math.sqrt(2), MOMENTUM)
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    network.compile(optimizer, loss, run_eagerly=True)
    optimizer.build(network.trainable_variables)
    for variables, values in zip(
        (network.trainable_variables, optimizer.momentums), model, strict=True
    ):
        for variable, value in zip(variables, values, strict=True):
            variable.assign(value)
    images, classes = samples
    ends = np.cumsum(sizes)
    for begin, end in zip(ends - sizes, ends, strict=True):
        network.train_on_batch(images[begin:end] / np.float32(255) - 0.5, classes[begin:end])
    trained = network.trainable_variables, optimizer.momentums
    weights, momenta = ([variable.numpy() for variable in some] for some in trained)
    return weights, momenta


def test_two_tasks_train_as_keras_does_on_their_batches() -> None:
    ours = trainer()
    with Training(ours, two_tasks()) as training:
        training.run()
    assert len(ours.errors) == 3 and ours.model() is None

    placed = two_tasks()
    keras.utils.set_random_seed(SEED)
    weights = [v.numpy() for v in convnet(Builder(), FASHION_SHAPE).trainable_variables]
    model = [weights, [np.zeros_like(array) for array in weights]]
    draws = {
        task: Draws(store, ("x", "y"), np.random.default_rng([SEED, task]))
        for task, store in placed.stores.items()
    }
    for _ in range(2):
        made = []
        for task, store in placed.stores.items():
            count, sizes = ((16, [5, 5, 6]), (8, [2, 3, 3]))[task]
            with store.iteration():
                draws[task].begin()
                samples = draws[task].draw(count)
            made.append(keras_steps(model, samples, np.array(sizes)))
        # Two thirds of the samples were the first task's.
        model = [
            [(2 * one + other) / 3 for one, other in zip(*pair, strict=True)]
            for pair in zip(*made, strict=True)
        ]
    for vector, arrays in zip(ours.no_update(), model, strict=False):
        assert vector.shape == np.concatenate([array.ravel() for array in arrays]).shape
    for got, arrays in zip(ours.trained, model, strict=True):
        wanted = np.concatenate([array.ravel() for array in arrays])
        np.testing.assert_allclose(got, wanted, rtol=0, atol=2e-7)
    assert np.abs(ours.trained[1]).max() > 1e-3


def test_quotas_follow_the_samples() -> None:
    schedule = Schedule(samples=6144, steps=6, batch=8)
    assert schedule.quota(6144 // 16, 16) == 48
    assert schedule.quota(6144 // 64, 64) == 48
    assert schedule.quota(2 * 6144 // 16, 16) == 96
    assert schedule.quota(6144 // 16, 16, share=0.5) == 24
    assert schedule.quota(1, 16) == 1 and schedule.quota(0, 16) == 0
    assert schedule.quota(6144, 7) == 7 * 48


@pytest.mark.parametrize("samples", [1, 5, 6, 48, 50])
def test_batches_differ_by_one_sample_at_most(samples: int) -> None:
    sizes = Schedule(6144, steps=6, batch=8).batches(samples)
    assert sizes.sum() == samples and len(sizes) == min(samples, 6)
    assert sizes.min() >= 1 and sizes.max() - sizes.min() <= 1


class Fixed:
    """A network whose error is always the same."""

    def error(self, *_: Any) -> float:
        return 0.25


@pytest.mark.parametrize("iterations", [2, 16, 64, 128])
def test_smoothing_does_not_depend_on_the_number_of_iterations(iterations: int) -> None:
    ours = trainer(iterations)
    first = ours.errors[0]
    ours.network = Fixed()  # type: ignore[assignment]
    for number in range(iterations):
        samples = np.array(SAMPLES / iterations)
        ours.merge([*ours.no_update()[:2], samples], Iteration(number, 2))
    assert len(ours.errors) == iterations + 1
    kept = math.exp(-1 / 0.25)  # after an epoch
    assert ours.errors[-1] == pytest.approx(kept * first + (1 - kept) * 0.25)


@pytest.mark.parametrize("case", [case for case in CASES if case.algorithm == "local_sgd"])
def test_micro_tasks_have_as_many_samples_each(case: Any) -> None:
    images = np.zeros((case.samples, *(CIFAR_SHAPE, FASHION_SHAPE)[case.name == "fashion"]), "u1")
    cutting = Cutting({"x": images, "y": np.zeros(case.samples, "i8")}, [DRAWN], case.chunk_bytes)
    assert len(set(cutting.sizes)) == 1 and case.samples <= 10_000
    assert all(len(cutting.sizes) % tasks == 0 for tasks in MICRO_TASKS)

"""The methods of `trepak bench bsp`: ways to take the same training step, on the same model."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from itertools import islice, repeat
from typing import Any

import trepak.keras as hvd  # before Keras: it keeps TensorFlow's start-up noise off the terminal

# isort: split
import horovod.tensorflow as raw_horovod
import keras
import tensorflow as tf

from trepak.models import digits
from trepak.scripts.bench.exchange_optimizers import raw_average

LEARNING_RATE, MOMENTUM = 0.01, 0.9


def build_model(initial: Sequence[Any] | None = None) -> Any:
    """Returns the network of all methods: 2.5 million weights, 10 MB of gradients."""
    layers = keras.layers
    model = keras.Sequential(
        [
            keras.Input(digits.IMAGE_SHAPE),
            layers.Conv2D(64, 3, padding="same", activation="relu"),
            layers.Conv2D(128, 3, padding="same", activation="relu"),
            layers.MaxPooling2D(),
            layers.Conv2D(256, 3, padding="same", activation="relu"),
            layers.Flatten(),
            layers.Dense(512, activation="relu"),
            layers.Dense(digits.CLASSES),
        ]
    )
    if initial is not None:
        model.set_weights(initial)
    return model


def build_optimizer() -> Any:
    """Returns the optimizer of all methods."""
    return keras.optimizers.SGD(LEARNING_RATE, momentum=MOMENTUM)


def build_loss() -> Any:
    """Returns the loss of all methods."""
    return keras.losses.SparseCategoricalCrossentropy(from_logits=True)


class StepTimer(keras.callbacks.Callback):
    """Notes when each batch of `fit` has ended."""

    def on_train_begin(self, logs: Any = None) -> None:
        """Forgets the times before."""
        self.ends: list[float] = []

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        """Notes the time, in seconds."""
        self.ends.append(time.perf_counter())


class Ours:
    """`model.fit` with trepak's DistributedOptimizer and the callback that every script uses."""

    needs_horovod = True

    def __init__(self, initial: Sequence[Any], dataset: Any) -> None:
        self.model = build_model(initial)
        self._dataset = dataset
        self.model.compile(hvd.DistributedOptimizer(build_optimizer()), build_loss())
        self._timer = StepTimer()
        self._callbacks = [self._timer, hvd.callbacks.BroadcastGlobalVariablesCallback(0)]

    def run(self, steps: int) -> list[float]:
        """Takes steps from the start of the data; returns when each ended, in seconds."""
        self.model.fit(
            self._dataset,
            steps_per_epoch=steps,
            callbacks=self._callbacks,
            shuffle=False,
            verbose=0,
        )
        return self._timer.ends


class Loop:
    """A hand-written loop around a step function."""

    def __init__(
        self, model: Any, dataset: Iterable[Any], step: Callable[..., Any], needs_horovod: bool
    ) -> None:
        self.model = model
        self.needs_horovod = needs_horovod
        self.dataset = dataset
        self._step = step

    def run(self, steps: int) -> list[float]:
        """Takes steps from the start of the data; returns when each ended, in seconds."""
        ends = []
        for batch in islice(self.dataset, steps):
            self._step(*batch)
            ends.append(time.perf_counter())
        return ends


def gradients_of(model: Any, loss: Any) -> Callable[[Any, Any], list[Any]]:
    """Returns a function of a batch that returns the gradients of the mean loss."""

    def gradients(images: Any, labels: Any) -> list[Any]:
        with tf.GradientTape() as tape:
            value = loss(labels, model(images, training=True))
        return list(tape.gradient(value, [v.value for v in model.trainable_variables]))

    return gradients


def raw_method(initial: Sequence[Any], dataset: Any, method: str | None) -> Loop:
    """Returns the loop over raw Horovod; see `raw_average`. None: over nothing, one rank alone."""
    model, optimizer = build_model(initial), build_optimizer()
    optimizer.build(model.trainable_variables)
    gradients = gradients_of(model, build_loss())

    @tf.function(reduce_retracing=True)  # for the batches of different sizes that are tried
    def step(images: Any, labels: Any) -> None:
        grads = gradients(images, labels)
        if method is not None:
            grads = raw_average(grads, method)
        optimizer.apply(grads, model.trainable_variables)

    return Loop(model, dataset, step, needs_horovod=method is not None)


def mirrored_method(strategy: Any, initial: Sequence[Any], dataset: Any) -> Loop:
    """Returns the custom loop of TensorFlow's own strategy.

    It is given local tensors rather than a distributed dataset, which would cost it more.
    """
    with strategy.scope():
        model, optimizer = build_model(initial), build_optimizer()
        optimizer.build(model.trainable_variables)
    # In a replica Keras' loss is divided by their number, and its optimizer sums over them.
    gradients = gradients_of(model, build_loss())

    def replica_step(images: Any, labels: Any) -> None:
        optimizer.apply(gradients(images, labels), model.trainable_variables)

    @tf.function
    def step(images: Any, labels: Any) -> None:
        strategy.run(replica_step, (images, labels))

    return Loop(model, dataset, step, needs_horovod=False)


def allreduce_method(model: Any) -> Loop:
    """Returns a method whose step is one raw grouped allreduce of the gradients' size."""

    @tf.function
    def step(*grads: Any) -> Any:
        return raw_horovod.grouped_allreduce(list(grads), op=raw_horovod.Average, name="alone")

    gradients = tuple(tf.ones(v.shape) for v in model.trainable_variables)
    return Loop(model, repeat(gradients), step, needs_horovod=True)

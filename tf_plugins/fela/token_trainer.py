"""Trainer: trains sub-models on tokens' batches (Section III-A, worker logic).

Gradients are sums over samples: what they are divided by, the samples of all ranks, is known when
the iteration is over.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import tensorflow as tf

from trepak.tf_plugins.fela.partition import Partition


class Activations(NamedTuple):
    """What a forward token leaves for the backward one.

    Attributes:
        tape: has recorded it.
        targets: its floating-point outputs, and the loss that layers added.
        inputs: its floating-point inputs, whose gradients go back.
        samples: in its batch.
        needs: by token that it was made of, samples.
    """

    tape: Any
    targets: list[Any]
    inputs: list[Any]
    samples: int
    needs: dict[int, int]


@dataclass
class Sums:
    """What a sub-model's tokens have added up to on this rank, in one iteration.

    Attributes:
        gradients: by trainable variable, sums over samples.
        state: by state variable that is averaged, its new values times samples.
    """

    gradients: list[Any]
    state: list[Any]

    def add(self, gradients: Sequence[Any]) -> None:
        """Adds a token's gradients."""
        self.gradients = [one + other for one, other in zip(self.gradients, gradients, strict=True)]

    def add_state(self, state: Sequence[Any], samples: int) -> None:
        """Adds what a token has made of state that is averaged."""
        self.state = [
            one + other * tf.cast(samples, other.dtype)
            for one, other in zip(self.state, state, strict=True)
        ]


class TokenTrainer:
    """The functions of a model's sub-models, and what they have made in an iteration.

    There is one graph for each sub-model, and another if its tokens have several batch sizes.

    Attributes:
        sums: by sub-model, from 0 on.
    """

    def __init__(
        self,
        partition: Partition,
        loss: Callable[[Sequence[Any], Sequence[Any]], Any],
        scale: Callable[[Any], Any],
        eager: bool,
    ) -> None:
        """Makes it.

        Args:
            partition: of the model.
            loss: takes the last sub-model's outputs and the label chunks' tensors; returns the mean
                over the batch, a scalar, and updates metrics.
            scale: see `Update.scale`.
            eager: run without graphs.
        """
        self._sub_models, self._loss, self._scale = partition.sub_models, loss, scale
        make = _as_they_are if eager else functools.partial(tf.function, reduce_retracing=True)
        self._forwards = [make(one.forward) for one in self._sub_models[:-1]]
        # Keras weighs the losses of several outputs by a batch size that it knows when it traces.
        self._last = self._train_last if eager else tf.function(self._train_last)
        self._values: list[tuple[list[Any], list[Any]]] = []
        self._activations: dict[int, Activations] = {}
        self._iteration: Any = None
        self.sums: list[Sums] = []

    def begin(self, iteration: int) -> None:
        """Takes the variables' values, from which all of the iteration's tokens go on."""
        self._iteration = tf.constant(iteration, tf.int64)
        self._values = [(_read(one.trainable), _read(one.state)) for one in self._sub_models]
        self.sums = [
            Sums(_zeros(trainable), _zeros(one.averaged_of(state)))
            for one, (trainable, state) in zip(self._sub_models, self._values, strict=True)
        ]

    def end(self) -> None:
        """Lets go of values and activations, so that variables can change in their place."""
        self._values, self._activations, self.sums = [], {}, []

    def forward(
        self,
        sub_model: int,
        token: int,
        inputs: Sequence[Any],
        sample_ids: Any,
        needs: dict[int, int],
        again: bool = False,
    ) -> tuple[list[Any], float]:
        """Computes a sub-model's outputs for a token, and keeps the activations.

        Args:
            sub_model: from 0 on; not the last one.
            token: the forward token's number.
            inputs: the sub-model's, for the token's samples.
            sample_ids: the samples' numbers.
            needs: by token that it is made of, samples.
            again: another has done it before: what state it makes is left out.

        Returns:
            The outputs, and the loss that layers added, a sum over samples.
        """
        trainable, state = self._values[sub_model]
        with tf.GradientTape() as tape:
            tape.watch([*trainable, *_floats(inputs)])
            made = self._forwards[sub_model](
                trainable, state, list(inputs), sample_ids, self._iteration
            )
        samples = int(sample_ids.shape[0])
        self._activations[token] = Activations(
            tape, [*_floats(made.outputs), made.loss], _floats(inputs), samples, needs
        )
        if not again:
            self.sums[sub_model].add_state(
                self._sub_models[sub_model].averaged_of(made.state), samples
            )
        return list(made.outputs), float(made.loss) * samples

    def last(
        self, inputs: Sequence[Any], labels: Sequence[Any], sample_ids: Any
    ) -> tuple[list[Any], float]:
        """Trains the last sub-model: forward, loss and backward.

        Returns:
            Gradients of its floating-point inputs, and the loss: both sums over samples.
        """
        trainable, state = self._values[-1]
        gradients, back, new_state, loss = self._last(
            trainable, state, list(inputs), list(labels), sample_ids, self._iteration
        )
        self.sums[-1].add(gradients)
        self.sums[-1].add_state(new_state, int(sample_ids.shape[0]))
        return back, float(loss)

    def backward(
        self, sub_model: int, token: int, gradients: Sequence[Any]
    ) -> tuple[list[Any], dict[int, int]]:
        """Goes backward through what a forward token has computed here.

        Args:
            sub_model: from 0 on.
            token: the forward token's number.
            gradients: of its floating-point outputs.

        Returns:
            Gradients of its floating-point inputs, and by token that it was made of, samples.
        """
        trainable, _ = self._values[sub_model]
        kept = self._activations.pop(token)
        of_loss = self._scale(tf.cast(kept.samples, kept.targets[-1].dtype))
        weights, back = kept.tape.gradient(
            kept.targets,
            (trainable, kept.inputs),
            [*gradients, of_loss],
            unconnected_gradients=tf.UnconnectedGradients.ZERO,
        )
        self.sums[sub_model].add([tf.convert_to_tensor(one) for one in weights])
        return back, kept.needs

    def _train_last(
        self,
        trainable: Sequence[Any],
        state: Sequence[Any],
        inputs: Sequence[Any],
        labels: Sequence[Any],
        sample_ids: Any,
        iteration: Any,
    ) -> tuple[list[Any], list[Any], list[Any], Any]:
        sub_model = self._sub_models[-1]
        count = tf.shape(sample_ids)[0]
        with tf.GradientTape() as tape:
            tape.watch([*trainable, *_floats(inputs)])
            made = sub_model.forward(trainable, state, inputs, sample_ids, iteration)
            loss = self._loss(made.outputs, labels)
            loss = (loss + tf.cast(made.loss, loss.dtype)) * tf.cast(count, loss.dtype)
            scaled = self._scale(loss)
        weights, back = tape.gradient(
            scaled,
            (list(trainable), _floats(inputs)),
            unconnected_gradients=tf.UnconnectedGradients.ZERO,
        )
        weights = [tf.convert_to_tensor(one) for one in weights]
        return weights, back, sub_model.averaged_of(made.state), loss


def _as_they_are(function: Callable[..., Any]) -> Callable[..., Any]:
    return function


def _read(variables: Sequence[Any]) -> list[Any]:
    return [one.value.read_value() for one in variables]


def _zeros(tensors: Sequence[Any]) -> list[Any]:
    return [tf.zeros_like(one) for one in tensors]


def _floats(tensors: Sequence[Any]) -> list[Any]:
    return [one for one in tensors if one.dtype.is_floating]

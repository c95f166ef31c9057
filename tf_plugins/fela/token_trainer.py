"""Trainer: trains sub-models on tokens' batches (Section III-A, worker logic).

Gradients are sums over samples: what they are divided by, the samples of all ranks, is known when
the iteration is over.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
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


@dataclass
class Iteration:
    """What an iteration has on this rank.

    Attributes:
        number: int64, scalar: among those of the training.
        values: by sub-model, those of its trainable and its state variables, from which all of the
            iteration's tokens go on.
        sums: by sub-model.
        sums_changes: of state its changes are summed, since other iterations may change it, too,
            between the beginning of this one and its end.
        activations: by forward token.
    """

    number: Any
    values: list[tuple[list[Any], list[Any]]]
    sums: list[Sums]
    sums_changes: bool = False
    activations: dict[int, Activations] = field(default_factory=dict)


class TokenTrainer:
    """The functions of a model's sub-models.

    There is one graph for each sub-model, and another if its tokens have several batch sizes.
    """

    def __init__(
        self,
        partition: Partition,
        loss: Callable[[Sequence[Any], Any], Any],
        scale: Callable[[Any], Any],
        eager: bool,
    ) -> None:
        """Makes it.

        Args:
            partition: of the model.
            loss: takes the last sub-model's outputs and labels; returns the mean over the batch, a
                scalar, and updates metrics.
            scale: see `Update.scale`.
            eager: run without graphs.
        """
        self._sub_models, self._loss, self._scale = partition.sub_models, loss, scale
        make = _as_they_are if eager else functools.partial(tf.function, reduce_retracing=True)
        self._forwards = [make(one.forward) for one in self._sub_models[:-1]]
        # Keras weighs the losses of several outputs by a batch size that it knows when it traces.
        self._last = self._train_last if eager else tf.function(self._train_last)

    def begin(self, iteration: int, sums_changes: bool = False) -> Iteration:
        """Returns an iteration with the variables' values; as long as it lives, they do."""
        values = [(_read(one.trainable), _read(one.state)) for one in self._sub_models]
        sums = [
            Sums(_zeros(trainable), _zeros(one.averaged_of(state)))
            for one, (trainable, state) in zip(self._sub_models, values, strict=True)
        ]
        return Iteration(tf.constant(iteration, tf.int64), values, sums, sums_changes)

    def forward(
        self,
        now: Iteration,
        sub_model: int,
        token: int,
        inputs: Sequence[Any],
        sample_ids: Any,
        needs: dict[int, int],
        again: bool = False,
    ) -> tuple[list[Any], float]:
        """Computes a sub-model's outputs for a token, and keeps the activations.

        Args:
            now: the token's iteration.
            sub_model: from 0 on; not the last one.
            token: the forward token's number.
            inputs: the sub-model's, for the token's samples.
            sample_ids: the samples' numbers.
            needs: by token that it is made of, samples.
            again: another has done it before: what state it makes is left out.

        Returns:
            The outputs, and the loss that layers added, a sum over samples.
        """
        trainable, state = now.values[sub_model]
        with tf.GradientTape() as tape:
            tape.watch([*trainable, *_floats(inputs)])
            made = self._forwards[sub_model](trainable, state, list(inputs), sample_ids, now.number)
        samples = int(sample_ids.shape[0])
        now.activations[token] = Activations(
            tape, [*_floats(made.outputs), made.loss], _floats(inputs), samples, needs
        )
        if not again:
            self._add_state(now, sub_model, made.state, samples)
        return list(made.outputs), float(made.loss) * samples

    def last(
        self, now: Iteration, inputs: Sequence[Any], labels: Any, sample_ids: Any
    ) -> tuple[list[Any], float]:
        """Trains the last sub-model: forward, loss and backward.

        Args:
            now: the token's iteration.
            inputs: the sub-model's, for the token's samples.
            labels: what `loss` takes; each structure of them is traced for itself.
            sample_ids: the samples' numbers.

        Returns:
            Gradients of its floating-point inputs, and the loss: both sums over samples.
        """
        trainable, state = now.values[-1]
        gradients, back, new_state, loss = self._last(
            trainable, state, list(inputs), labels, sample_ids, now.number
        )
        now.sums[-1].add(gradients)
        self._add_state(now, -1, new_state, int(sample_ids.shape[0]))
        return back, float(loss)

    def backward(
        self, now: Iteration, sub_model: int, token: int, gradients: Sequence[Any]
    ) -> tuple[list[Any], dict[int, int]]:
        """Goes backward through what a forward token has computed here, with its weights.

        Args:
            now: the token's iteration.
            sub_model: from 0 on.
            token: the forward token's number.
            gradients: of its floating-point outputs.

        Returns:
            Gradients of its floating-point inputs, and by token that it was made of, samples.
        """
        trainable, _ = now.values[sub_model]
        kept = now.activations.pop(token)
        of_loss = self._scale(tf.cast(kept.samples, kept.targets[-1].dtype))
        weights, back = kept.tape.gradient(
            kept.targets,
            (trainable, kept.inputs),
            [*gradients, of_loss],
            unconnected_gradients=tf.UnconnectedGradients.ZERO,
        )
        now.sums[sub_model].add([tf.convert_to_tensor(one) for one in weights])
        return back, kept.needs

    def _add_state(
        self, now: Iteration, sub_model: int, state: Sequence[Any], samples: int
    ) -> None:
        averaged_of = self._sub_models[sub_model].averaged_of
        made = averaged_of(state)
        if now.sums_changes:
            before = averaged_of(now.values[sub_model][1])
            made = [new - old for new, old in zip(made, before, strict=True)]
        now.sums[sub_model].add_state(made, samples)

    def _train_last(
        self,
        trainable: Sequence[Any],
        state: Sequence[Any],
        inputs: Sequence[Any],
        labels: Any,
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
        return weights, back, made.state, loss


def _as_they_are(function: Callable[..., Any]) -> Callable[..., Any]:
    return function


def _read(variables: Sequence[Any]) -> list[Any]:
    return [one.value.read_value() for one in variables]


def _zeros(tensors: Sequence[Any]) -> list[Any]:
    return [tf.zeros_like(one) for one in tensors]


def _floats(tensors: Sequence[Any]) -> list[Any]:
    return [one for one in tensors if one.dtype.is_floating]

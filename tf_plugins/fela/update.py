"""The loss of a token, and what an iteration changes in a model."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import keras
import tensorflow as tf

from trepak.tf_plugins.fela.own_batch import BatchFormat
from trepak.tf_plugins.fela.partition import Partition
from trepak.tf_plugins.fela.submodel import SubModel
from trepak.tf_plugins.fela.token_trainer import float_state

_MEANS = ("sum_over_batch_size", "mean")


class Update:
    """The mathematics of one compiled model: that of bulk synchronous training."""

    def __init__(self, model: Any, partition: Partition, batches: BatchFormat) -> None:
        """Makes it.

        Raises:
            ValueError: the model's loss is no mean over samples, or it has a step of its own.
        """
        self._model, self._partition, self._batches = model, partition, batches
        _check(model)
        eager = bool(model.run_eagerly)
        self._applied = self._apply if eager else tf.function(self._apply)

    def loss(self, outputs: Sequence[Any], labels: Sequence[Any]) -> Any:
        """Returns the mean over a token's samples, and updates metrics by them."""
        model, y_pred = self._model, self._partition.packed(outputs)
        y, sample_weight = self._batches.pack_labels(labels)
        loss = model._compile_loss(y, y_pred, sample_weight)
        model.compute_metrics(None, y, y_pred, sample_weight=sample_weight)
        return loss

    def scale(self, loss: Any) -> Any:
        """Returns a loss as the optimizer wants it: a LossScaleOptimizer scales it."""
        return self._model.optimizer.scale_loss(loss)

    def apply(
        self,
        sub_models: Sequence[SubModel],
        sums: Sequence[Sequence[Any]],
        samples: int,
        loss: float,
    ) -> Any:
        """Updates weights and state.

        Args:
            sub_models: those that this rank updates.
            sums: of each, over all ranks: gradients, then state times samples.
            samples: of all ranks.
            loss: the sum over them.

        Returns:
            Logs.
        """
        regularization = self._applied(tuple(sub_models), sums, tf.constant(samples, tf.float64))
        mean = loss / samples + float(regularization)
        self._model._loss_tracker.update_state(mean, sample_weight=samples)
        return self._model.get_metrics_result()

    def _apply(
        self, sub_models: Sequence[SubModel], sums: Sequence[Sequence[Any]], samples: Any
    ) -> Any:
        gradients: list[Any] = []
        variables: list[Any] = []
        losses = [tf.zeros([], tf.float64)]
        for sub_model, of_sub_model in zip(sub_models, sums, strict=True):
            count = len(sub_model.trainable)
            loss, of_weights = self._regularization(sub_model)
            losses.append(tf.cast(loss, tf.float64))
            gradients += [
                one / tf.cast(samples, one.dtype) + tf.cast(of_weight, one.dtype)
                for one, of_weight in zip(of_sub_model[:count], of_weights, strict=True)
            ]
            variables += sub_model.trainable
            for variable, value in zip(float_state(sub_model), of_sub_model[count:], strict=True):
                variable.assign(tf.cast(value / tf.cast(samples, value.dtype), variable.dtype))
        self._model.optimizer._apply_plainly(gradients, variables)
        return tf.add_n(losses)

    def _regularization(self, sub_model: SubModel) -> tuple[Any, list[Any]]:
        """Returns the loss of weight regularizers and its gradients: once in an iteration."""
        values = [v.value.read_value() for v in sub_model.trainable]
        with tf.GradientTape() as tape:
            tape.watch(values)
            loss = sub_model.regularization(values)
            scaled = self.scale(loss)
        zero = tf.UnconnectedGradients.ZERO
        return loss, tape.gradient(scaled, values, unconnected_gradients=zero)


def _check(model: Any) -> None:
    name = f"model {model.name!r}"
    for method in ("train_step", "compute_loss"):
        if getattr(type(model), method) is not getattr(keras.Model, method):
            raise ValueError(
                f"{name} has a {method} of its own, which Fela would not call: its step is made of "
                "tokens. Compile a keras.Model with loss= and metrics=."
            )
    if model._compile_loss is None:
        raise ValueError(f"{name} is compiled without a loss: Fela trains by the one of compile().")
    if model.steps_per_execution != 1:
        raise ValueError(f"{name} runs steps in blocks: leave steps_per_execution at 1.")
    for loss in keras.tree.flatten(model._compile_loss._user_loss):
        reduction = getattr(loss, "reduction", _MEANS[0])
        if reduction not in _MEANS:
            raise ValueError(
                f"the loss {getattr(loss, 'name', loss)!r} of {name} has reduction={reduction!r}, "
                "and tokens' losses are put together as means over samples: use "
                f"reduction={_MEANS[0]!r}."
            )

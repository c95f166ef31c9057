"""The loss of a token, and what an iteration changes in a model."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import Any

import keras
import tensorflow as tf

from trepak.tf_plugins.fela.compiled import no_masks
from trepak.tf_plugins.fela.partition import Partition
from trepak.tf_plugins.fela.submodel import SubModel


class Update:
    """The mathematics of one compiled model: that of bulk synchronous training."""

    def __init__(self, model: Any, partition: Partition) -> None:
        """Makes it of a model that was checked."""
        self._model, self._partition = model, partition
        # What losses are multiplied by before gradients are taken, so that these don't overflow: a
        # power of two, which changes no digit.
        self._unit = tf.Variable(1.0, trainable=False, dtype=tf.float64)
        eager = bool(model.run_eagerly)
        self._applied = self._apply if eager else tf.function(self._apply)

    def loss(self, outputs: Sequence[Any], labels: tuple[Any, Any]) -> Any:
        """Returns the mean over a token's samples, and updates metrics by them.

        Args:
            outputs: of the last sub-model.
            labels: labels and sample weights, as the model's loss takes them.

        Raises:
            ValueError: the loss can't be put together of tokens' losses; says why.
        """
        model, y_pred = self._model, self._partition.packed(outputs)
        y, sample_weight = labels
        with no_masks(model, outputs):
            loss = model._compile_loss(y, y_pred, sample_weight)
        model.compute_metrics(None, y, y_pred, sample_weight=sample_weight)
        return loss

    def expect(self, samples: int) -> None:
        """Sets how many samples iterations have at most, of all ranks; the same on all ranks."""
        self._unit.assign(2.0 ** -(samples - 1).bit_length())

    def scale(self, loss: Any) -> Any:
        """Returns a loss, a sum over samples, for gradients that are to be added up.

        They are about as large as those of the mean over all ranks' samples, which a
        LossScaleOptimizer scales.
        """
        return self._model.optimizer.scale_loss(loss * tf.cast(self._unit, loss.dtype))

    def apply(
        self,
        sub_models: Sequence[SubModel],
        sums: Sequence[Sequence[Any]],
        samples: int,
        loss: float,
        changes: bool = False,
    ) -> Any:
        """Updates weights and state.

        Args:
            sub_models: those that this rank updates.
            sums: of each, over all ranks: gradients of what `scale` returns, then state times
                samples.
            samples: of all ranks.
            loss: the sum over them.
            changes: it is not state, but its changes.

        Returns:
            Logs.
        """
        count = tf.constant(samples, tf.float64)
        regularization = self._applied(tuple(sub_models), sums, count, changes)
        mean = tf.constant(loss / samples, tf.float64) + regularization
        self._model._loss_tracker.update_state(mean, sample_weight=samples)
        return self._model.get_metrics_result()

    def rate(self) -> float | None:
        """Returns the learning rate that a callback may have set; None if it is a schedule's."""
        rate = self._settable_rate()
        return None if rate is None else float(rate)

    @contextlib.contextmanager
    def at(self, rate: float | None) -> Iterator[None]:
        """Has an update go by a learning rate of before.

        Args:
            rate: see `rate`.
        """
        variable = self._settable_rate()
        if variable is None or rate is None:
            yield
            return
        now = float(variable)
        variable.assign(rate)
        try:
            yield
        finally:
            variable.assign(now)

    def _settable_rate(self) -> Any:
        optimizer = getattr(self._model.optimizer, "inner_optimizer", self._model.optimizer)
        rate = getattr(optimizer, "_learning_rate", None)
        return rate if isinstance(rate, keras.Variable) else None

    def _apply(
        self,
        sub_models: Sequence[SubModel],
        sums: Sequence[Sequence[Any]],
        samples: Any,
        changes: bool,
    ) -> Any:
        gradients: list[Any] = []
        variables: list[Any] = []
        losses = [tf.zeros([], tf.float64)]
        divisor = samples * self._unit
        for sub_model, of_sub_model in zip(sub_models, sums, strict=True):
            count = len(sub_model.trainable)
            loss, of_weights = self._regularization(sub_model)
            losses.append(tf.cast(loss, tf.float64))
            gradients += [
                one / tf.cast(divisor, one.dtype) + tf.cast(of_weight, one.dtype)
                for one, of_weight in zip(of_sub_model[:count], of_weights, strict=True)
            ]
            variables += sub_model.trainable
            for variable, value in zip(sub_model.averaged, of_sub_model[count:], strict=True):
                mean = tf.cast(value / tf.cast(samples, value.dtype), variable.dtype)
                variable.assign_add(mean) if changes else variable.assign(mean)
        self._model.optimizer._apply_plainly(gradients, variables)
        return tf.add_n(losses)

    def _regularization(self, sub_model: SubModel) -> tuple[Any, list[Any]]:
        """Returns the loss of weight regularizers and its gradients: once in an iteration."""
        values = [v.value.read_value() for v in sub_model.trainable]
        with tf.GradientTape() as tape:
            tape.watch(values)
            loss = sub_model.regularization(values)
            scaled = self._model.optimizer.scale_loss(loss)
        zero = tf.UnconnectedGradients.ZERO
        return loss, tape.gradient(scaled, values, unconnected_gradients=zero)

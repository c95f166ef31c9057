"""Batch normalization over the batches of all ranks."""

from __future__ import annotations

from typing import Any

import keras
import tensorflow as tf

from trepak.horovod_ext import basics, collectives
from trepak.tf_plugins.tracing import number_in_graph


@keras.saving.register_keras_serializable(package="trepak")
class SyncBatchNormalization(keras.layers.BatchNormalization):
    """BatchNormalization whose statistics are those of all ranks' batches together.

    Its options are Keras' own, except `synchronized`, which is for tf.distribute. Gradients flow
    through the statistics of all ranks, so n ranks with b samples normalize as one with n·b.
    """

    def __init__(self, fused: bool = False, **kwargs: Any) -> None:
        """Makes the layer.

        Args:
            fused: accepted for Horovod scripts; must be False.
            kwargs: see `keras.layers.BatchNormalization`.

        Raises:
            ValueError: `fused` or `synchronized` is asked for.
        """
        if fused or fused is None:
            raise ValueError("SyncBatchNormalization does not support fused=True.")
        if kwargs.pop("synchronized", False):
            raise ValueError("SyncBatchNormalization is synchronized by Horovod: leave it out.")
        kwargs.setdefault("name", None)
        super().__init__(**kwargs)

    def get_config(self) -> dict[str, Any]:
        """Returns the layer's options."""
        config = super().get_config()
        config.pop("synchronized", None)
        return config

    def _moments(self, inputs: Any, mask: Any) -> tuple[Any, Any]:
        mean, variance = super()._moments(inputs, mask)
        if not basics.is_elastic() and basics.size() == 1:
            return mean, variance
        # Var[X] = E[X²] − E[X]², each weighed by the samples behind it: the last batches of uneven
        # shards differ in size.
        axes = [i for i in range(len(inputs.shape)) if i != self.axis % len(inputs.shape)]
        if mask is None:
            count = tf.reduce_prod(tf.gather(tf.shape(inputs), axes))
        else:
            count = tf.math.count_nonzero(mask)
        weight = tf.cast(count, mean.dtype)
        stack = tf.stack([mean, variance + tf.square(mean)]) * weight
        sums = tf.concat([tf.reshape(stack, [-1]), tf.reshape(weight, [1])], 0)
        total = _sum_over_ranks(sums, f"trepak_sync_batch_norm_{number_in_graph('batch norm')}")
        stats = tf.reshape(total[:-1] / total[-1], tf.shape(stack))
        stats.set_shape(stack.shape)
        return stats[0], stats[1] - tf.square(stats[0])


def _sum_over_ranks(value: Any, name: str) -> Any:
    """Sums a tensor over all ranks, differentiably.

    Its collectives are named by the layer's place in the graph: Keras' layer names hold numbers
    that differ where a rank has built or loaded other models before.
    """

    def summed(tensor: Any, name: str) -> Any:
        return collectives.allreduce(tensor, op=collectives.Sum, name=name, ignore_name_scope=True)

    @tf.custom_gradient
    def differentiable(tensor: Any) -> Any:
        return summed(tensor, name), lambda gradient: summed(gradient, f"{name}_gradient")

    return differentiable(value)

"""Batch normalization over the batches of all ranks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import keras
import tensorflow as tf

from trepak.horovod_ext import basics, collectives
from trepak.tf_plugins.model.tracing import number_in_graph

_sets: dict[tuple[int, ...], basics.ProcessSet] = {}  # that layers were made with, by their ranks


@keras.saving.register_keras_serializable(package="trepak")
class SyncBatchNormalization(keras.layers.BatchNormalization):
    """BatchNormalization whose statistics are those of all ranks' batches together.

    Its options are Keras' own, except `synchronized`, which is for tf.distribute. Gradients flow
    through the statistics of all ranks, so n ranks with b samples normalize as one with n·b. Ranks
    may have batches of other sizes, or none; masked inputs don't count.
    """

    def __init__(self, fused: bool = False, **kwargs: Any) -> None:
        """Makes the layer.

        Args:
            fused: accepted for Horovod scripts; must be False.
            kwargs: see `keras.layers.BatchNormalization`; and `process_set`, the ranks that
                normalize together, by default all: another rank normalizes its own batch. A list of
                ranks, as the config of a copy has it, means the set of another layer.

        Raises:
            ValueError: `fused` or `synchronized` is asked for.
        """
        if fused or fused is None:
            raise ValueError("SyncBatchNormalization does not support fused=True.")
        if kwargs.pop("synchronized", False):
            raise ValueError("SyncBatchNormalization is synchronized by Horovod: leave it out.")
        kwargs.setdefault("name", None)
        process_set = kwargs.pop("process_set", basics.global_process_set)
        super().__init__(**kwargs)
        self.process_set = process_set

    @property
    def process_set(self) -> basics.ProcessSet | tuple[int, ...]:
        """The ranks that normalize together; their numbers, where a loaded layer lacks the set."""
        return self._process_set

    @process_set.setter
    def process_set(self, given: basics.ProcessSet | Sequence[int]) -> None:
        if not isinstance(given, basics.ProcessSet):
            self._process_set = _sets.get(tuple(given), tuple(given))
            return
        self._process_set = given
        if given is not basics.global_process_set:
            _sets[tuple(given.ranks)] = given

    def get_config(self) -> dict[str, Any]:
        """Returns the layer's options."""
        config = super().get_config()
        config.pop("synchronized", None)
        if self.process_set is not basics.global_process_set:
            config["process_set"] = list(getattr(self.process_set, "ranks", self.process_set))
        return config

    def call(self, inputs: Any, training: Any = None, mask: Any = None) -> Any:
        """Normalizes; NaN and infinity where masked count as 0, or all gradients would be NaN."""
        rank = len(inputs.shape)
        if mask is not None and inputs.dtype.is_floating and len(mask.shape) == rank - 1:
            usable = tf.cast(mask, tf.bool)[..., None] | tf.math.is_finite(inputs)
            inputs = tf.where(usable, inputs, tf.zeros_like(inputs))
        return super().call(inputs, training=training, mask=mask)

    def _moments(self, inputs: Any, mask: Any) -> tuple[Any, Any]:
        process_set = self._ranks()
        if process_set is None:
            return super()._moments(inputs, mask)
        axes = [i for i in range(len(inputs.shape)) if i != self.axis % len(inputs.shape)]
        local = _local_statistics(inputs, mask, axes)
        mean, variance = _merged(_gathered(local, process_set))
        return tf.cast(mean, inputs.dtype), tf.cast(variance, inputs.dtype)

    def _ranks(self) -> basics.ProcessSet | None:
        """Returns the ranks that normalize together; None if this rank does so alone."""
        if not basics.is_elastic() and basics.size() == 1:
            return None
        if not isinstance(self.process_set, basics.ProcessSet):
            raise ValueError(
                f"layer {self.name!r} normalizes the batches of ranks {list(self.process_set)} "
                f"together, and this process (rank {basics.rank()}) knows no such process set. Set "
                "layer.process_set to the ProcessSet that init() or add_process_set() was given."
            )
        if self.process_set is basics.global_process_set:
            return self.process_set
        return self.process_set if self.process_set.included() else None


def _local_statistics(inputs: Any, mask: Any, axes: list[int]) -> Any:
    """Returns this rank's count, mean and centred sum of squares by channel, [3, C] in float64.

    Differentiable. A batch of no samples has zeros.
    """
    shape = tf.shape(inputs, out_type=tf.int64)
    channel = next(i for i in range(len(inputs.shape)) if i not in axes)
    if mask is None:
        taken = None
        count = tf.fill([shape[channel]], tf.reduce_prod(tf.gather(shape, axes)))
    else:
        taken = tf.broadcast_to(tf.cast(mask, tf.bool)[..., None], shape)
        count = tf.reduce_sum(tf.cast(taken, tf.int64), axes)
    count = tf.cast(count, tf.float64)
    divisor = tf.maximum(count, 1.0)

    def mean_of(values: Any) -> Any:
        # The sums are of the inputs' precision, what is exchanged is not.
        if taken is not None:
            values = tf.where(taken, values, tf.zeros_like(values))
        return tf.cast(tf.reduce_sum(values, axes), tf.float64) / divisor

    # A mean of large numbers is off by some of their last bits. Distances from it are exact, and
    # tell by how much: the centre cancels out, in gradients too.
    centre = tf.stop_gradient(tf.cast(mean_of(inputs), inputs.dtype))
    lines = [-1 if i == channel else 1 for i in range(len(inputs.shape))]
    distances = inputs - tf.reshape(centre, lines)
    if taken is not None:  # whose squares may be infinite, and their gradients NaN
        distances = tf.where(taken, distances, tf.zeros_like(distances))
    shift = mean_of(distances)
    mean = tf.cast(centre, tf.float64) + shift
    squares = count * (mean_of(tf.square(distances)) - tf.square(shift))
    return tf.ensure_shape(tf.stack([count, mean, squares]), [3, inputs.shape[channel]])


def _merged(everyone: Any) -> tuple[Any, Any]:
    """Merges the ranks' statistics, [size, 3, C], into the mean and variance of all samples.

    Chan, Golub and LeVeque's formula: the centred sums of squares, and the distances of the ranks'
    means from the common one. E[x²] − E[x]² would subtract large numbers that are almost equal.
    """
    counts, means, squares = tf.unstack(everyone, axis=1)
    total = tf.maximum(tf.reduce_sum(counts, 0), 1.0)
    mean = tf.reduce_sum(counts * means, 0) / total
    spread = tf.reduce_sum(squares + counts * tf.square(means - mean), 0)
    return mean, spread / total


# One gather forward and one reduce-scatter backward: centred sums about a mean that has been summed
# before would wait for the network twice, each way. The bytes grow with the ranks in exchange,
# 24 per channel and rank, which costs less than a second wait until there are hundreds of ranks.
#
# The collectives are named by the layer's place in the graph: Keras' layer names hold numbers that
# differ where a rank has built or loaded other models before.


def _gathered(value: Any, process_set: basics.ProcessSet) -> Any:
    """Gathers [...] of all ranks into [size, ...]; its gradient is `_scattered`."""
    name = f"trepak_sync_batch_norm_{number_in_graph('batch norm')}"

    @tf.custom_gradient
    def gather(tensor: Any) -> Any:
        everyone = collectives.allgather(
            tensor[None], name=name, ignore_name_scope=True, process_set=process_set
        )
        everyone = tf.ensure_shape(everyone, [None, *tensor.shape])
        return everyone, lambda gradient: _scattered(gradient, process_set)

    return gather(value)


def _scattered(value: Any, process_set: basics.ProcessSet) -> Any:
    """Sums [size, ...] over ranks and returns this rank's [...]; its gradient is `_gathered`."""
    name = f"trepak_sync_batch_norm_gradient_{number_in_graph('batch norm gradient')}"

    @tf.custom_gradient
    def scatter(tensor: Any) -> Any:
        mine = collectives.reducescatter(
            tensor,
            op=collectives.Sum,
            name=name,
            ignore_name_scope=True,
            process_set=process_set,
        )
        mine = tf.ensure_shape(mine[0], tensor.shape[1:])
        return mine, lambda gradient: _gathered(gradient, process_set)

    return scatter(value)

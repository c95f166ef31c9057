"""The optimizers of benches' methods: ours, and what a user of plain Horovod writes for Keras 3."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import trepak.keras as hvd  # before Keras: it keeps TensorFlow's start-up noise off the terminal

# isort: split
import horovod.tensorflow as raw_horovod
import keras
import tensorflow as tf

from trepak.horovod_ext.gradient_groups import BUCKET_BYTES, buckets
from trepak.scripts.bench.exchanges import ALONE, BSP, RAW_EACH, RAW_GROUPED, RING

_EACH = 10**6  # groups of gradients: one for each
_RATE = 0.001


def raw_average(gradients: Sequence[Any], kind: str) -> list[Any]:
    """Returns gradients' means over the ranks, by raw Horovod: RAW_GROUPED or RAW_EACH."""
    average = raw_horovod.Average
    if kind == RAW_GROUPED:
        return list(raw_horovod.grouped_allreduce(gradients, op=average, name="grouped"))
    return [
        raw_horovod.allreduce(gradient, op=average, name=f"each.{place}")
        for place, gradient in enumerate(gradients)
    ]


class RawHorovod(keras.optimizers.SGD):  # type: ignore[misc]  # Keras has no types
    """SGD that reduces gradients by raw Horovod; see `raw_average`."""

    def __init__(self, kind: str) -> None:
        super().__init__(_RATE)
        self._kind = kind

    def apply(self, grads: Sequence[Any], trainable_variables: Any = None) -> Any:
        """Reduces and applies; see `keras.optimizers.Optimizer.apply`."""
        grads = raw_average([tf.convert_to_tensor(gradient) for gradient in grads], self._kind)
        return super().apply(grads, trainable_variables)


def make(kind: str, variables: Sequence[Any], shrink: float, transport: Any) -> Any:
    """Returns a method's optimizer.

    Args:
        kind: one of `exchanges`' names.
        variables: what it will train.
        shrink: what they were divided by; buckets are divided by it too.
        transport: the method's; None where it has none.
    """
    if kind in (RAW_GROUPED, RAW_EACH):
        return RawHorovod(kind)
    optimizer = keras.optimizers.SGD(_RATE)
    groups: Any = None
    if kind == ALONE:
        return optimizer
    if kind == BSP:
        made = buckets(variables, max(1, round(BUCKET_BYTES / shrink)))
        groups = [[variables[place] for place in bucket] for bucket in made]
    elif kind == RING:
        groups = _EACH
    return hvd.DistributedOptimizer(optimizer, transport=transport, groups=groups)

"""Sums of IndexedSlices over the ranks, also after some ranks have called join().

Slices are gathered. Horovod has no allgather once a rank has joined: it would hang, or send
rubbish. It has allreduces then, to which joined ranks add zeros. So the ranks count themselves in
an allreduce of one number, which waits for no gradient, and if one is missing the slices travel in
allreduces, too.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import horovod.tensorflow as _hvd
import tensorflow as tf

from trepak.horovod_ext import basics
from trepak.horovod_ext.carriers import carried

_NARROW = (
    tf.float16,
    tf.bfloat16,
    tf.dtypes.experimental.float8_e4m3fn,
    tf.dtypes.experimental.float8_e5m2,
)


def _wide(dtype: Any) -> Any:
    return tf.float32 if dtype in _NARROW else dtype


def _of_quotients(dtype: Any) -> Any:
    """Returns the dtype of averages, that of `x / n`: integers have floating-point ones."""
    if not dtype.is_integer:
        return dtype
    return tf.float32 if dtype.size < 4 else tf.float64


def _merge(values: Any, indices: Any) -> tuple[Any, Any]:
    unique, places = tf.unique(indices)
    return tf.math.unsorted_segment_sum(values, places, tf.size(unique)), unique


def merged(grad: Any) -> Any:
    """Returns IndexedSlices that name each index once; anything else as it is.

    Keras' optimizers square the rows of one index each by itself; merged, they count as if dense.

    Args:
        grad: a gradient. Rows of less than 32 bits are summed in float32, and rounded once.
    """
    if not isinstance(grad, tf.IndexedSlices):
        return grad
    values, indices = _merge(tf.cast(grad.values, _wide(grad.dtype)), grad.indices)
    return _finished(grad, grad.dtype, values, indices)


def sum_over_ranks(
    slices: Sequence[tf.IndexedSlices],
    average: bool,
    name: str,
    process_set: basics.ProcessSet = basics.global_process_set,
) -> list[tf.IndexedSlices]:
    """Sums IndexedSlices over the ranks of a process set; a collective call.

    The result is that of dense tensors, each index named once. Rows of less than 32 bits are summed
    in float32 and rounded once.

    Args:
        slices: on each rank any number of rows, of the same dtypes.
        average: divide by the number of ranks, those that have joined included. Averages of
            integers are floating-point numbers, as in Horovod: float64, or float32 of narrow ones.
        name: begins the names of the collectives.
        process_set: the ranks that take part.

    Returns:
        A list aligned with `slices`.

    Raises:
        TypeError: rows of this dtype can't be sent.
    """
    dtypes = [_of_quotients(one.dtype) if average else one.dtype for one in slices]
    rows = [
        _merge(tf.cast(one.values, _wide(dtype)), one.indices)
        for one, dtype in zip(slices, dtypes, strict=True)
    ]
    gather = functools.partial(_gather, rows, name, process_set)
    # Only all ranks can be joined, not those of a set.
    if process_set.process_set_id != 0:
        gathered = gather()
    else:
        gathered = _if_all_are_here(name, gather, functools.partial(_gather_by_sums, rows, name))
    summed = []
    for one, dtype, (values, indices) in zip(slices, dtypes, gathered, strict=True):
        values, indices = _merge(values, indices)
        if average:
            values /= tf.cast(basics.dynamic_size(process_set), values.dtype)
        summed.append(_finished(one, dtype, values, indices))
    return summed


def _finished(slices: tf.IndexedSlices, dtype: Any, values: Any, indices: Any) -> tf.IndexedSlices:
    values = tf.cast(values, dtype)
    if slices.values.shape.rank is not None:
        values.set_shape([None, *slices.values.shape[1:]])  # which a condition may have lost
    return tf.IndexedSlices(values, indices, dense_shape=slices.dense_shape)


def _if_all_are_here(name: str, then: Any, otherwise: Any) -> Any:
    """Returns `then()` if no rank has joined, else `otherwise()`: the same on all ranks."""
    size = _hvd.size_op()
    # Not a constant: TensorFlow would count once, while it optimizes the graph.
    here = _sum(tf.reshape(tf.minimum(size, 1), [1]), f"{name}_ranks")[0]
    if tf.executing_eagerly():
        return then() if int(here) == int(size) else otherwise()
    return tf.cond(tf.equal(here, size), then, otherwise)


def _sum(tensor: Any, name: str) -> Any:
    def allreduce(carrier: Any) -> Any:
        return _hvd.allreduce(carrier, op=_hvd.Sum, name=name, ignore_name_scope=True)

    return carried(allreduce, "allreduce", tensor, name)


def _gather(rows: Sequence[Any], name: str, process_set: basics.ProcessSet) -> list[Any]:
    def gather(tensor: Any, part: str) -> Any:
        def allgather(carrier: Any) -> Any:
            return _hvd.allgather(
                carrier, name=f"{name}_{part}", ignore_name_scope=True, process_set=process_set
            )

        return carried(allgather, "allgather", tensor, name)

    return [
        (gather(values, f"values_{number}"), gather(indices, f"indices_{number}"))
        for number, (values, indices) in enumerate(rows)
    ]


def _gather_by_sums(rows: Sequence[Any], name: str) -> list[Any]:
    """Returns what `_gather` does, of the ranks that have not joined."""
    rank = _hvd.rank_op()
    mine = tf.one_hot(rank, _hvd.size_op(), dtype=tf.int32)
    counts = _sum(tf.stack([mine * tf.size(indices) for _, indices in rows]), f"{name}_counts")
    gathered = []
    for number, (values, indices) in enumerate(rows):
        before = tf.reduce_sum(counts[number, :rank])
        after = tf.reduce_sum(counts[number, rank + 1 :])
        gathered.append(
            (
                _sum(_between_zeros(before, values, after), f"{name}_summed_values_{number}"),
                _sum(_between_zeros(before, indices, after), f"{name}_summed_indices_{number}"),
            )
        )
    return gathered


def _between_zeros(before: Any, rows: Any, after: Any) -> Any:
    def zeros(count: Any) -> Any:
        return tf.zeros(tf.concat([[count], tf.shape(rows)[1:]], 0), rows.dtype)

    return tf.concat([zeros(before), rows, zeros(after)], 0)

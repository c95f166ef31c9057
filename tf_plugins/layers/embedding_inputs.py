"""The ids and weights of a feature as native code takes them: flat, with the samples' bounds."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import tensorflow as tf


@dataclass(frozen=True)
class FeatureInput:
    """One feature's ids of a batch.

    Attributes:
        ids: int64, of all samples one behind the other.
        splits: int64; those of sample s are ids[splits[s]:splits[s + 1]].
        weights: float32, one for each id; None: all are 1.
        shape: of the outputs but for the columns, an int64 vector.
        static_shape: the same as far as it is known when a graph is made.
        reduces: whether a sample may have several ids, whose rows become one.
    """

    ids: Any
    splits: Any
    weights: Any
    shape: Any
    static_shape: tuple[int | None, ...]
    reduces: bool


def feature_input(path: str, ids: Any, weights: Any = None) -> FeatureInput:
    """Returns a feature's ids and weights, flat.

    Args:
        path: the feature's, for errors.
        ids: whole numbers: [batch], of which each is a sample; or [batch, …, ids], dense, ragged in
            the last dimension or sparse, whose rows are reduced.
        weights: of the same structure and shape; none: all are 1.

    Raises:
        TypeError: the ids are no whole numbers, or the weights no such tensors as they are.
    """
    if not ids.dtype.is_integer:
        raise TypeError(
            f"the ids of the feature {path!r} must be whole numbers, got {ids.dtype.name}."
        )
    kinds = (tf.RaggedTensor, tf.SparseTensor)
    given = [type(one) for one in (ids, weights) if isinstance(one, kinds)]
    if weights is not None and len(given) == 1:
        raise TypeError(
            f"ids and weights of the feature {path!r} must both be dense, ragged or sparse."
        )
    if given and ids.shape.rank != 2:
        raise TypeError(
            f"the ids of the feature {path!r} are ragged or sparse of rank {ids.shape.rank}; only "
            "rank 2 is supported, [batch, ids]."
        )
    if isinstance(ids, tf.SparseTensor):
        batch = ids.dense_shape[0]
        splits = tf.searchsorted(ids.indices[:, 0], tf.range(batch + 1, dtype=tf.int64))
        static, values = (ids.shape[0],), ids.values
        shape = ids.dense_shape[:1]
        flat_weights = None if weights is None else weights.values
    elif isinstance(ids, tf.RaggedTensor):
        values, splits = ids.flat_values, ids.row_splits
        static, shape = (ids.shape[0],), tf.reshape(ids.nrows(tf.int64), [1])
        flat_weights = None if weights is None else weights.flat_values
    else:
        return _dense(ids, weights)
    ids, splits = tf.cast(values, tf.int64), tf.cast(splits, tf.int64)
    return FeatureInput(ids, splits, _flat(flat_weights), shape, static, True)


def _dense(ids: Any, weights: Any) -> FeatureInput:
    reduces = ids.shape.rank > 1
    shape = tf.shape(ids, tf.int64)
    outer = shape[:-1] if reduces else shape
    samples = tf.reduce_prod(outer)
    each = shape[-1] if reduces else tf.constant(1, tf.int64)
    static = ids.shape[:-1] if reduces else ids.shape
    return FeatureInput(
        tf.cast(tf.reshape(ids, [-1]), tf.int64),
        tf.range(samples + 1) * each,
        _flat(weights if weights is None else _like(weights, ids)),
        outer,
        tuple(static.as_list()),
        reduces,
    )


def _like(weights: Any, ids: Any) -> Any:
    """Returns weights of the ids' shape: those of fewer dimensions count for all that follow."""
    missing = ids.shape.rank - weights.shape.rank
    if missing <= 0:
        return weights
    wide = tf.reshape(weights, tf.concat([tf.shape(weights), tf.ones([missing], tf.int32)], 0))
    return tf.broadcast_to(wide, tf.shape(ids))


def _flat(weights: Any) -> Any:
    return None if weights is None else tf.reshape(tf.cast(weights, tf.float32), [-1])

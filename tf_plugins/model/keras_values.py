"""The collectives of `trepak.keras`: they take any value that TensorFlow can make a tensor of.

They return tensors, also of numbers, as Horovod's do where TensorFlow executes eagerly. In a graph
of TensorFlow 1 that has a session, they return what the session makes of them, as Horovod's do.
"""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from trepak.horovod_ext import collectives, exchange
from trepak.horovod_ext.collectives import Average, Compression


def _value(tensor: Any) -> Any:
    """Returns the tensor, or its value where a TensorFlow 1 style session is there to ask."""
    if tf.executing_eagerly() or exchange.is_possible():  # the latter: in a tf.function
        return tensor
    session = tf.compat.v1.get_default_session()
    return tensor if session is None else session.run(tensor)


def allreduce(
    value: Any,
    name: str | None = None,
    average: Any = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    op: Any = None,
    compression: Any = Compression.none,
) -> Any:
    """Reduces a tensor-like value over all ranks; see `trepak.allreduce`."""
    reduced = collectives.allreduce(
        tf.convert_to_tensor(value, name=name),
        average=average,
        compression=compression,
        op=op,
        prescale_factor=prescale_factor,
        postscale_factor=postscale_factor,
        name=name,
    )
    return _value(reduced)


def allgather(value: Any, name: str | None = None) -> Any:
    """Concatenates all ranks' values along the first dimension; see `trepak.allgather`."""
    return _value(collectives.allgather(tf.convert_to_tensor(value, name=name), name=name))


def broadcast(value: Any, root_rank: int, name: str | None = None) -> Any:
    """Returns `root_rank`'s value; see `trepak.broadcast`."""
    return _value(
        collectives.broadcast(tf.convert_to_tensor(value, name=name), root_rank, name=name)
    )


def reducescatter(value: Any, name: str | None = None, op: Any = Average) -> Any:
    """Reduces over all ranks and returns this rank's share; see `trepak.reducescatter`."""
    return _value(
        collectives.reducescatter(tf.convert_to_tensor(value, name=name), op=op, name=name)
    )

"""The collectives of `trepak.keras`: they take any value that TensorFlow can make a tensor of."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from trepak.horovod_ext import collectives
from trepak.horovod_ext.collectives import Average, Compression


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
    return collectives.allreduce(
        tf.convert_to_tensor(value, name=name),
        average=average,
        compression=compression,
        op=op,
        prescale_factor=prescale_factor,
        postscale_factor=postscale_factor,
        name=name,
    )


def allgather(value: Any, name: str | None = None) -> Any:
    """Concatenates all ranks' values along the first dimension; see `trepak.allgather`."""
    return collectives.allgather(tf.convert_to_tensor(value, name=name), name=name)


def broadcast(value: Any, root_rank: int, name: str | None = None) -> Any:
    """Returns `root_rank`'s value; see `trepak.broadcast`."""
    return collectives.broadcast(tf.convert_to_tensor(value, name=name), root_rank, name=name)


def reducescatter(value: Any, name: str | None = None, op: Any = Average) -> Any:
    """Reduces over all ranks and returns this rank's share; see `trepak.reducescatter`."""
    return collectives.reducescatter(tf.convert_to_tensor(value, name=name), op=op, name=name)

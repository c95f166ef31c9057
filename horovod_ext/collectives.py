"""Horovod's collectives, for Keras 3 variables too, with errors that name the ranks.

Names and signatures are Horovod's. What trepak adds: Keras variables are taken as arguments, eager
tensors may be captured by a tf.function, and a mismatch between ranks names them.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import horovod.tensorflow as _hvd
import tensorflow as tf
from horovod.tensorflow import (  # noqa: F401
    Adasum,
    Average,
    Compression,
    Max,
    Min,
    Product,
    Sum,
    check_num_rank_power_of_2,
    gpu_available,
    handle_average_backwards_compatibility,
    local_rank_op,
    local_size_op,
    process_set_included_op,
    rank_op,
    size_op,
)

from trepak.horovod_ext import basics, exchange
from trepak.horovod_ext.variables import tf_variable

_F = TypeVar("_F", bound=Callable[..., Any])


def _as_input(value: Any) -> Any:
    """Returns a tensor that Horovod can name: it reads `Tensor.name`, which eager tensors lack."""
    value = tf_variable(value)
    if isinstance(value, tf.IndexedSlices):
        values, indices = _as_input(value.values), _as_input(value.indices)
        return tf.IndexedSlices(values, indices, dense_shape=value.dense_shape)
    if isinstance(value, list | tuple):
        return [_as_input(v) for v in value]
    if not tf.executing_eagerly() and hasattr(value, "numpy") and not hasattr(value, "handle"):
        return tf.identity(value)
    return value


def _description(value: Any) -> Any:
    if isinstance(value, list | tuple):
        return [_description(v) for v in value]
    if isinstance(value, tf.IndexedSlices):
        return _description(value.values)
    tensor = value if tf.is_tensor(value) else tf.convert_to_tensor(value)
    return f"{tensor.dtype.name} {tensor.shape.as_list()}"


class RankMismatchError(tf.errors.FailedPreconditionError, ValueError):
    """Ranks passed different dtypes, shapes, roots or ops to one collective.

    Also the error that TensorFlow raises for it, so that code which catches that goes on working.
    """

    def __init__(self, message: str) -> None:
        """Makes the error."""
        super().__init__(None, None, message)


def _explain_mismatch(
    what: str, name: str | None, value: Any, process_set: Any
) -> RankMismatchError:
    """Asks every rank what it passed: Horovod fails a mismatch on all of them, naming none."""
    everyone = exchange.gather(_description(value), "mismatch", process_set)
    ranks = process_set.ranks
    passed = "; ".join(f"rank {r} passed {d}" for r, d in zip(ranks, everyone, strict=True))
    return RankMismatchError(
        f"rank {basics.rank()}: {what} of {name or 'an unnamed tensor'!r} got different inputs: "
        f"{passed}. Pass the same dtype and shape (and root_rank and op) on every rank."
    )


def _collective(function: _F) -> _F:
    @functools.wraps(function)
    @tf.autograph.experimental.do_not_convert  # nothing here depends on a tensor's value
    def wrapper(tensor: Any, *args: Any, **kwargs: Any) -> Any:
        tensor = _as_input(tensor)
        if not tf.executing_eagerly():
            return function(tensor, *args, **kwargs)
        what = function.__name__
        try:
            return function(tensor, *args, **kwargs)
        except (tf.errors.FailedPreconditionError, tf.errors.InvalidArgumentError) as error:
            if "Mismatched" not in str(error):
                raise
            process_set = kwargs.get("process_set") or basics.global_process_set
            raise _explain_mismatch(what, kwargs.get("name"), tensor, process_set) from error

    return wrapper  # type: ignore[return-value]


allreduce = _collective(_hvd.allreduce)
allgather = _collective(_hvd.allgather)
grouped_allgather = _collective(_hvd.grouped_allgather)
broadcast = _collective(_hvd.broadcast)
alltoall = _collective(_hvd.alltoall)
reducescatter = _collective(_hvd.reducescatter)
grouped_reducescatter = _collective(_hvd.grouped_reducescatter)
_dense_grouped_allreduce = _collective(_hvd.grouped_allreduce)


@functools.wraps(_hvd.grouped_allreduce)
def grouped_allreduce(tensors: Sequence[Any], *args: Any, **kwargs: Any) -> list[Any]:
    """Reduces a sequence of tensors and IndexedSlices as one group; see Horovod's function."""
    sparse = [i for i, t in enumerate(tensors) if isinstance(t, tf.IndexedSlices)]
    if not sparse or len(sparse) == len(tensors):
        return list(_dense_grouped_allreduce(tensors, *args, **kwargs))
    # Mixed in one call, Horovod 0.28.1 gives slices the dense_shape of another tensor.
    dense = [i for i in range(len(tensors)) if i not in set(sparse)]
    reduced: list[Any] = [None] * len(tensors)
    for indices in (sparse, dense):  # what slices do not support is refused before any collective
        part = _dense_grouped_allreduce([tensors[i] for i in indices], *args, **kwargs)
        for index, tensor in zip(indices, part, strict=True):
            reduced[index] = tensor
    return reduced


def join() -> Any:
    """Tells the other ranks that this one has no more data, and waits until all have said so.

    Until then it takes part in their allreduces with zeros. Returns the last rank to join, an int32
    scalar; broadcast the variables from it afterwards, since the ranks' updates differed.

    Raises:
        HorovodInternalError: a rank has left the job.
    """
    return _hvd.join()


def barrier(process_set: basics.ProcessSet = basics.global_process_set) -> None:
    """Waits until every rank of the process set has called it.

    Raises:
        HorovodInternalError: a rank has left the job.
    """
    exchange.gather(None, "barrier", process_set)

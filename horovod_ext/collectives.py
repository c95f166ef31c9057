"""Horovod's collectives, for Keras 3 variables too, with errors that name the ranks.

Names and signatures are Horovod's. What trepak adds: Keras variables are taken as arguments, eager
tensors may be captured by a tf.function, every dtype travels or is refused with a remedy, and a
mismatch between ranks names them.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import horovod.tensorflow as _hvd
import numpy as np
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
from trepak.horovod_ext.carriers import Passage, place, stable_name
from trepak.horovod_ext.sparse import sum_over_ranks
from trepak.horovod_ext.variables import tf_variable

_F = TypeVar("_F", bound=Callable[..., Any])


def _as_input(value: Any) -> Any:
    """Returns a tensor that Horovod can name: it reads `Tensor.name`, which eager tensors lack."""
    value = tf_variable(value)
    if isinstance(value, tf.IndexedSlices):
        values, indices = _as_input(value.values), _as_input(value.indices)
        return tf.IndexedSlices(values, indices, dense_shape=value.dense_shape)
    if not hasattr(value, "dtype") or isinstance(value, np.ndarray | np.generic):
        return tf.convert_to_tensor(value)
    if not tf.executing_eagerly() and hasattr(value, "numpy") and not hasattr(value, "handle"):
        return tf.identity(value)
    return value


def _description(value: Any) -> Any:
    if isinstance(value, list | tuple):
        return [_description(v) for v in value]
    if isinstance(value, tf.IndexedSlices):
        return _description(value.values)
    return f"{value.dtype.name} {value.shape.as_list()}"


class RankMismatchError(tf.errors.FailedPreconditionError, ValueError):
    """Ranks passed different dtypes, shapes, roots or ops to one collective.

    Also the error that TensorFlow raises for it, so that code which catches that goes on working.
    """

    def __init__(self, message: str) -> None:
        """Makes the error."""
        super().__init__(None, None, message)


class JoinedRankError(tf.errors.FailedPreconditionError, RuntimeError):
    """A rank has called join(), after which Horovod has no such collective.

    Also the error that TensorFlow raises for it, so that code which catches that goes on working.
    """

    def __init__(self, message: str) -> None:
        """Makes the error."""
        super().__init__(None, None, message)


def _explain(what: str, call: inspect.BoundArguments, inputs: Any, error: Exception) -> Exception:
    """Returns a better error, or the same one: Horovod names neither ranks nor remedies.

    Of a mismatch, which fails on all ranks, it asks every rank what it passed.
    """
    where = place(what, call.arguments.get("name"))
    if "with Join" in str(error):
        return JoinedRankError(
            f"{where}: another rank has called join(), and until all have, Horovod has allreduces "
            f"only. Call join() on every rank before the first {what} that follows uneven steps."
        )
    if "Mismatched" not in str(error):
        return error
    process_set = call.arguments.get("process_set", basics.global_process_set)
    everyone = exchange.gather(_description(inputs), "mismatch", process_set)
    pairs = zip(process_set.ranks, everyone, strict=True)
    passed = "; ".join(f"rank {rank} passed {description}" for rank, description in pairs)
    return RankMismatchError(
        f"{where} got different inputs: {passed}. Pass the same dtype and shape (and root_rank and "
        "op) on every rank."
    )


def _collective(function: _F) -> _F:
    """Makes Horovod's function take values of Keras, of every dtype, and explain its errors."""
    what = function.__name__
    signature = inspect.signature(function)
    first = next(iter(signature.parameters))
    grouped = what.startswith("grouped_")

    @functools.wraps(function)
    @tf.autograph.experimental.do_not_convert  # nothing here depends on a tensor's value
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        call = signature.bind(*args, **kwargs)
        given = call.arguments[first]
        inputs = [_as_input(one) for one in (given if grouped else [given])]

        def send(dense: Sequence[Any]) -> list[Any]:
            return _send(function, call, dense, grouped)

        try:
            results = _with_slices(what, call, inputs, send)
        except (tf.errors.FailedPreconditionError, tf.errors.InvalidArgumentError) as error:
            if not tf.executing_eagerly():
                raise
            explained = _explain(what, call, inputs if grouped else inputs[0], error)
            if explained is error:
                raise
            raise explained from error
        return results if grouped else results[0]

    return wrapper  # type: ignore[return-value]


def _with_slices(
    what: str,
    call: inspect.BoundArguments,
    inputs: Sequence[Any],
    send: Callable[[Sequence[Any]], list[Any]],
) -> list[Any]:
    """Returns the results of a collective some of whose inputs may be IndexedSlices."""
    sparse = [i for i, one in enumerate(inputs) if isinstance(one, tf.IndexedSlices)]
    if not sparse:
        return send(inputs)
    results = list(inputs)
    # What slices do not support is refused before any collective.
    summed = _sum_slices(what, call, [inputs[i] for i in sparse])
    for index, one in zip(sparse, summed, strict=True):
        results[index] = one
    dense = [i for i in range(len(inputs)) if i not in set(sparse)]
    for index, one in zip(dense, send([inputs[i] for i in dense]), strict=True):
        results[index] = one
    return results


def _sum_slices(what: str, call: inspect.BoundArguments, slices: Sequence[Any]) -> list[Any]:
    options = call.arguments
    if what not in ("allreduce", "grouped_allreduce"):
        raise TypeError(
            f"rank {basics.rank()}: {what} does not take tf.IndexedSlices; pass a dense tensor, "
            "tf.convert_to_tensor(slices)."
        )
    op = handle_average_backwards_compatibility(options.get("op"), options.get("average"))
    if op not in (Average, Sum):
        raise NotImplementedError(
            "tf.IndexedSlices are reduced with op=Average or op=Sum; for others pass dense "
            "tensors, or sparse_as_dense=True to DistributedOptimizer."
        )
    if options.get("prescale_factor", 1.0) != 1.0 or options.get("postscale_factor", 1.0) != 1.0:
        raise NotImplementedError(
            "prescale_factor and postscale_factor are not supported with tf.IndexedSlices; scale "
            "the values."
        )
    name = options.get("name")
    if name is None:
        name = what if tf.executing_eagerly() else stable_name(what, slices[0].values)
    process_set = options.get("process_set", basics.global_process_set)
    with tf.device(options.get("device_sparse", "")):
        return sum_over_ranks(slices, op == Average, name, process_set)


def _send(
    function: Callable[..., Any], call: inspect.BoundArguments, dense: Sequence[Any], grouped: bool
) -> list[Any]:
    """Returns what Horovod's function makes of dense tensors, each in its own dtype."""
    if not dense:
        return []
    what, options = function.__name__, call.arguments
    name = options.get("name")
    passages = [Passage(one, what, name, options.get("op")) for one in dense]
    carriers = [passage.begin() for passage in passages]
    first, *rest = call.signature.parameters
    arguments = {key: options[key] for key in rest if key in options}
    is_unnamed = "name" in rest and name is None and not tf.executing_eagerly()
    if is_unnamed and carriers[0] is not dense[0]:
        arguments["name"] = stable_name(what, dense[0])  # as if the tensor itself were sent
    made = function(**{first: carriers if grouped else carriers[0]}, **arguments)
    if grouped:
        return [passage.end(one) for passage, one in zip(passages, made, strict=True)]
    if isinstance(made, tuple):  # alltoall's rows, and how many are of each rank
        return [(passages[0].end(made[0]), *made[1:])]
    return [passages[0].end(made)]


allreduce = _collective(_hvd.allreduce)
grouped_allreduce = _collective(_hvd.grouped_allreduce)
allgather = _collective(_hvd.allgather)
grouped_allgather = _collective(_hvd.grouped_allgather)
broadcast = _collective(_hvd.broadcast)
alltoall = _collective(_hvd.alltoall)
reducescatter = _collective(_hvd.reducescatter)
grouped_reducescatter = _collective(_hvd.grouped_reducescatter)


def join() -> Any:
    """Tells the other ranks that this one has no more data, and waits until all have said so.

    Until then it takes part in their allreduces with zeros. Returns the last rank to join, an int32
    scalar; broadcast the variables from it afterwards, since the ranks' updates differed.

    Raises:
        HorovodInternalError: a rank has left the job.
    """
    if not tf.executing_eagerly():
        return _hvd.join()
    # TensorFlow takes an op without inputs for a constant: called once more, it would return the
    # first result at once, and not join. A function of its own is evaluated each time.
    return tf.compat.v1.wrap_function(_hvd.join, signature=[])()


def barrier(process_set: basics.ProcessSet = basics.global_process_set) -> None:
    """Waits until every rank of the process set has called it.

    Raises:
        HorovodInternalError: a rank has left the job.
    """
    exchange.gather(None, "barrier", process_set)

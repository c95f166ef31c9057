"""One rank's variables and objects, copied to all the others."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from typing import Any

import horovod.tensorflow as _hvd
import tensorflow as tf
from horovod.tensorflow import (  # noqa: F401
    allgather_object,
    broadcast_object,
    broadcast_object_fn,
)

from trepak.horovod_ext import basics, collectives, exchange
from trepak.horovod_ext.carriers import is_native
from trepak.horovod_ext.variables import describe, tf_variable

_LARGE = 1 << 20  # bytes of a variable, from which on links cost more than calls


def broadcast_variables(
    variables: Sequence[Any],
    root_rank: int,
    process_set: basics.ProcessSet = basics.global_process_set,
    inplace: bool = False,
) -> Any:
    """Copies variables from `root_rank` to all ranks of a process set.

    Variables are matched by position, not by name, so that a rank whose layers were numbered
    differently (after loading a model, say) still receives the right values.

    Args:
        variables: Keras or TensorFlow variables, in the same order on every rank.
        root_rank: the rank whose values are copied.
        process_set: the ranks that take part.
        inplace: receive into the variables' own buffers, as in Horovod; saves a temporary copy, but
            matches variables by name. Variables whose dtype Horovod does not have are copied.

    Raises:
        HorovodInternalError: a rank has left the job.
        TypeError: a variable's dtype can't be sent, as strings can't.

    Returns:
        None, or the op that does it while a graph is built.
    """
    tensors = [tf_variable(variable) for variable in variables]
    made = []
    if inplace:
        received = [variable for variable in tensors if is_native(variable.dtype, "broadcast_")]
        tensors = [variable for variable in tensors if not is_native(variable.dtype, "broadcast_")]
        if received:
            made.append(_hvd.broadcast_variables(received, root_rank, process_set, inplace))
    if basics.is_elastic() or process_set.size() > 1:
        may_sum = not inplace and _are_alike(tensors, root_rank, process_set)
        made += _copy(tensors, root_rank, "trepak_broadcast", process_set, may_sum)
    return None if tf.executing_eagerly() else tf.group(*made)


def broadcast_(
    variables: Sequence[Any],
    root_rank: int,
    name: str | None = None,
    process_set: basics.ProcessSet = basics.global_process_set,
) -> list[Any]:
    """Copies variables from `root_rank` into their own buffers; returns their values.

    Args:
        variables: Keras or TensorFlow variables, of the same names on every rank. Those whose dtype
            Horovod does not have are copied.
        root_rank: the rank whose values are copied.
        name: of the collective.
        process_set: the ranks that take part.

    Raises:
        HorovodInternalError: a rank has left the job.
        TypeError: a variable's dtype can't be sent, as strings can't.
    """
    tensors = [tf_variable(variable) for variable in variables]
    native = [is_native(variable.dtype, "broadcast_") for variable in tensors]
    received = [variable for variable, is_one in zip(tensors, native, strict=True) if is_one]
    copied = [variable for variable, is_one in zip(tensors, native, strict=True) if not is_one]
    values = iter(_hvd.broadcast_(received, root_rank, name, process_set) if received else [])
    copies = iter(_copy(copied, root_rank, name or "trepak_broadcast_", process_set))
    return [next(values) if is_one else tf.identity(next(copies)) for is_one in native]


def _copy(
    variables: Sequence[Any], root_rank: int, name: str, process_set: Any, may_sum: bool = False
) -> list[Any]:
    """Assigns `root_rank`'s values; returns what `assign` returns."""
    made = []
    for index, variable in enumerate(variables):
        copied = _summed if may_sum and _is_large(variable) else _broadcast
        made.append(variable.assign(copied(variable, root_rank, f"{name}_{index}", process_set)))
    return made


def _broadcast(variable: Any, root_rank: int, name: str, process_set: Any) -> Any:
    return collectives.broadcast(variable, root_rank, name, True, process_set)


def _summed(variable: Any, root_rank: int, name: str, process_set: Any) -> Any:
    """Returns root's value by a ring allreduce, which sends it twice over each link.

    Gloo's broadcast forwards whole values in a tree. Among 8 ranks it takes three times as long.
    """
    is_root = basics.rank() == root_rank
    # Any number plus -0.0 is that number, bit by bit; -0.0 plus 0.0 is not. TensorFlow keeps scalar
    # constants by their value, so that -0.0 as a constant may be 0.0.
    with tf.device(variable.device):  # as on root, where a GPU would be the default
        mine = variable if is_root else tf.fill(variable.shape, -tf.zeros([], variable.dtype))
    return collectives.allreduce(mine, op=collectives.Sum, name=name, process_set=process_set)


def _is_large(variable: Any) -> bool:
    """Tells whether ranks get it sooner by a sum; on GPUs Horovod broadcasts in another way."""
    if variable.dtype not in (tf.float32, tf.float64) or "GPU" in variable.device:
        return False
    return (variable.shape.num_elements() or 0) * variable.dtype.size >= _LARGE


def _are_alike(variables: Sequence[Any], root_rank: int, process_set: Any) -> bool:
    """Tells whether ranks may sum: of one root, and with the same variables; a collective call.

    Where they may not, broadcasts fail, and say what differs. Nor in graphs: ranks may have other
    numbers when these run.
    """
    if not variables or process_set.size() < 3 or not tf.executing_eagerly():
        return False
    mine = [int(root_rank), [[*describe(one, named=False), _is_large(one)] for one in variables]]
    digest = hashlib.sha256(json.dumps(mine).encode()).hexdigest()
    told = exchange.gather(digest, "variables to be broadcast", process_set)
    return set(told) == {digest} and root_rank in process_set.ranks


def broadcast_global_variables(root_rank: int) -> Any:
    """Copies the TensorFlow 1 style global variables of the graph; for Keras 3 use a callback.

    Raises:
        RuntimeError: executed eagerly, where there is no collection of global variables; the
            message names what to use instead.
    """
    if tf.executing_eagerly():
        raise RuntimeError(
            "broadcast_global_variables() needs a graph-mode program. With Keras 3 use "
            "callbacks.BroadcastGlobalVariablesCallback(root_rank), or "
            "broadcast_variables(model.weights + model.optimizer.variables, root_rank)."
        )
    return _hvd.broadcast_global_variables(root_rank)

"""One rank's variables and objects, copied to all the others."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import horovod.tensorflow as _hvd
import tensorflow as tf
from horovod.tensorflow import (  # noqa: F401
    allgather_object,
    broadcast_,
    broadcast_object,
    broadcast_object_fn,
)

from trepak.horovod_ext import basics
from trepak.horovod_ext.variables import tf_variable


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
            matches variables by name.

    Raises:
        HorovodInternalError: a rank has left the job.

    Returns:
        None, or the op that does it while a TensorFlow 1 graph is built.
    """
    tensors = [tf_variable(variable) for variable in variables]
    if inplace:
        return _hvd.broadcast_variables(tensors, root_rank, process_set, inplace)
    if not basics.is_elastic() and process_set.size() == 1:
        return None
    assigned = []
    for index, variable in enumerate(tensors):
        name = f"trepak_broadcast_{index}"
        value = _hvd.broadcast(variable, root_rank, name, True, process_set)
        assigned.append(variable.assign(value))
    return None if tf.executing_eagerly() else tf.group(*assigned)


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

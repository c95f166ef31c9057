"""The names of `horovod.tensorflow.functions`, all of which `trepak` has."""

from trepak.horovod_ext.broadcasting import (
    allgather_object,
    broadcast_object,
    broadcast_object_fn,
    broadcast_variables,
)

__all__ = ["allgather_object", "broadcast_object", "broadcast_object_fn", "broadcast_variables"]

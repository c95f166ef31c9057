"""What one optimizer has of native threads: a system's flows are opened, and end, by its number."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from trepak.ops.loader import load

__all__ = ["connect_stream", "stop_stream"]


def connect_stream(system: str, stream: int, *addresses: str | Sequence[str]) -> None:
    """Opens this rank's flows.

    Args:
        system: "rna", "elastic_bsp" or "adpsgd".
        stream: the optimizer's number.
        addresses: where others listen: those of all workers or peers, by rank, and before them the
            controller's, where there is one.

    Raises:
        tf.errors.UnknownError: a rank did not answer in time, or is not of this job.
    """
    import tensorflow as tf

    with tf.init_scope(), tf.device("CPU:0"):
        _op(system, "connect")(*(tf.constant(each) for each in addresses), stream=stream)


def stop_stream(system: str, stream: int, patience_seconds: float = 0.0) -> None:
    """Ends threads and flows; what waits for them fails. Without any, does nothing.

    Args:
        system: see `connect_stream`.
        stream: the optimizer's number.
        patience_seconds: how long other ranks may take to end theirs, before their flows are cut.
    """
    import tensorflow as tf

    with tf.init_scope(), tf.device("CPU:0"):
        _op(system, "stop")(stream=stream, patience_milliseconds=round(1000 * patience_seconds))


def _op(system: str, name: str) -> Any:
    return getattr(load(), f"trepak_{system}_{name}")

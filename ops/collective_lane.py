"""Lanes: an optimizer's gradients through Horovod's collectives, in a step's background."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from trepak.ops.loader import load, load_horovod_driver

__all__ = ["start_lane", "stop_lanes"]


def start_lane(
    name: str,
    me: str,
    variables: Sequence[tuple[int, str, Any, int]],
    piece_bytes: int,
    window_bytes: int,
) -> None:
    """Makes variables' gradients travel through Horovod's collectives.

    Args:
        name: its collectives' names begin with it; no other lane's do.
        me: how errors name this rank.
        variables: key, name, dtype and number of elements of each, the first layers' first; the
            same on all ranks.
        piece_bytes: larger gradients are cut; a multiple of 8.
        window_bytes: of the pieces that are under way together.

    Raises:
        ImportError: the library that drives Horovod has not been built, or not for this Horovod.
    """
    import tensorflow as tf

    load_horovod_driver()
    keys, labels, dtypes, elements = zip(*variables, strict=True)
    with tf.init_scope(), tf.device("CPU:0"):
        load().trepak_start_lane(
            lane=name,
            me=me,
            keys=list(keys),
            labels=list(labels),
            types=[tf.as_dtype(dtype) for dtype in dtypes],
            elements=list(elements),
            piece_bytes=piece_bytes,
            window_bytes=window_bytes,
        )


def stop_lanes() -> None:
    """Ends all lanes of this process; what waits fails."""
    import tensorflow as tf

    with tf.init_scope(), tf.device("CPU:0"):
        load().trepak_stop_lanes()

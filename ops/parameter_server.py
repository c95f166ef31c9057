"""What the job's parameter servers sum."""

from __future__ import annotations

from typing import Any

from trepak.ops.loader import load

__all__ = ["register_variable"]


def register_variable(key: int, label: str, dtype: Any, elements: int) -> None:
    """Makes a variable known to the parameter servers.

    Args:
        key: its number, the same on all ranks.
        label: its name.
        dtype: of its gradients, float32 or float64.
        elements: how many it has.

    Raises:
        tf.errors.UnknownError: another one has that key, or the servers have failed.
    """
    import tensorflow as tf

    with tf.init_scope(), tf.device("CPU:0"):
        load().trepak_register_variable(
            key=key, label=label, T=tf.as_dtype(dtype), elements=elements
        )

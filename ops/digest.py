"""Digests of variables' bytes, by which ranks find out that they hold the same values."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trepak.ops.loader import load

__all__ = ["digests"]


def digests(variables: Sequence[Any]) -> NDArray[np.uint64]:
    """Returns a digest of each variable's bytes; runs at once, also while a function is traced.

    Args:
        variables: `tf.Variable`s of any dtype of plain numbers. Those in this machine's memory are
            read in place; those of another device are copied to it first.

    Returns:
        uint64, [variables]: equal for equal bits, and different for different ones but once in
        2^64.
    """
    import tensorflow as tf

    if not variables:
        return np.zeros(0, np.uint64)
    with tf.init_scope(), tf.device("CPU:0"):
        values = [
            v.handle if "CPU" in v.device.rpartition("device:")[2] else tf.identity(v)
            for v in variables
        ]
        found: NDArray[np.uint64] = load().trepak_digests(values).numpy()
        return found

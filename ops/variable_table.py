"""The table of variables that are exchanged: which there are, and Geryon's map_table of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from trepak.ops.loader import call

__all__ = ["add_variable", "place_variable", "set_thresholds"]


def add_variable(key: int, label: str, dtype: Any, elements: int) -> None:
    """Makes a variable known to all that exchanges variables.

    Args:
        key: its number, the same on all ranks.
        label: its name, for errors.
        dtype: of its gradients, float32 or float64.
        elements: how many it has.

    Raises:
        tf.errors.UnknownError: another one has that key.
    """
    import tensorflow as tf

    name = tf.as_dtype(dtype).name
    call("add_variable", key=key, label=label, dtype=name, elements=elements)


def place_variable(key: int, layer: int, fully_connected: bool) -> None:
    """Says where a variable stands in the network.

    Args:
        key: what `add_variable` was given.
        layer: position of its layer in forward order, from 1 on.
        fully_connected: what coarse categorization separates.

    Raises:
        tf.errors.NotFoundError: no variable has that key.
        tf.errors.UnknownError: it stands elsewhere.
    """
    call("place_variable", key=key, layer=layer, fully_connected=fully_connected)


def set_thresholds(thresholds: Sequence[float] | None) -> None:
    """Sets what separates the priorities, from the highest on.

    Args:
        thresholds: falling urgencies (1 - l/L); None has fully connected layers second, all others
            first.

    Raises:
        tf.errors.UnknownError: they don't fall.
    """
    call("set_thresholds", thresholds=thresholds)

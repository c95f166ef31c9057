"""How many samples of one order all ranks have taken, on the parameter servers."""

from __future__ import annotations

from typing import Any

from trepak.ops.loader import call, load

__all__ = ["begin_order", "take_samples"]


def begin_order(key: int, size: int, is_first: bool) -> None:
    """Begins an order of samples; every rank must, before any takes. The servers must run.

    Args:
        key: its number on the parameter servers.
        size: number of ranks.
        is_first: on one rank.

    Raises:
        tf.errors.UnknownError: the servers have failed.
    """
    call("begin_order", key=key, size=size, is_first=is_first)


def take_samples(key: int, size: int, count: int) -> Any:
    """Takes the next samples of an order; returns how many had been taken before; int64, [].

    Args:
        key: what `begin_order` was given.
        size: what `begin_order` was given.
        count: of the samples.

    Raises:
        HorovodInternalError: a server did not answer in time, or a rank has left.
    """
    return load().trepak_take_samples(key=key, size=size, count=count)

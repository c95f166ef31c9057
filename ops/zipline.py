"""Where a barrier makes workers wait least: the native searches."""

from __future__ import annotations

from typing import Any, NamedTuple

from trepak.ops.loader import load

__all__ = ["ALGORITHMS", "Found", "search"]

ALGORITHMS = ("zipline", "paper", "grid_scan", "full_grid_scan", "naive")


class Found(NamedTuple):
    """What a search has found.

    Attributes:
        waiting_time: of who stops first, for who stops last.
        barrier_time: when that one stops.
        iterations: int64, [workers], how many each of them does.
        seconds: that the search took.
    """

    waiting_time: float
    barrier_time: float
    iterations: Any
    seconds: float


def search(end_times: Any, algorithm: str) -> Found:
    """Searches for the barrier with the least waiting time.

    Args:
        end_times: float64, [workers, iterations], when they are expected to end.
        algorithm: one of ALGORITHMS.

    Raises:
        tf.errors.InvalidArgumentError: no workers or iterations, or times that descend or are not
            finite.
    """
    import tensorflow as tf

    with tf.init_scope(), tf.device("CPU:0"):
        waiting, barrier, iterations, seconds = load().trepak_zipline(
            tf.convert_to_tensor(end_times, tf.float64), algorithm=algorithm
        )
        return Found(float(waiting), float(barrier), iterations.numpy(), float(seconds))

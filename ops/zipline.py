"""Where a barrier makes workers wait least: the native searches."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trepak.ops.loader import call

__all__ = ["ALGORITHMS", "Barrier", "search"]

ALGORITHMS = ("zipline", "paper", "grid_scan", "full_grid_scan", "naive")


@dataclass(frozen=True, eq=False)
class Barrier:
    """Where workers stop: after one of the iterations of each.

    Attributes:
        waiting_time: of who stops first, for who stops last (the paper's d_Z); in the unit of the
            end times.
        barrier_time: when the last one stops.
        iterations: int64, [workers], how many each of them does until then.
        search_seconds: that it took to find it.
    """

    waiting_time: float
    barrier_time: float
    iterations: NDArray[np.int64]
    search_seconds: float


def search(end_times: Any, algorithm: str) -> Barrier:
    """Searches for the barrier with the least waiting time.

    Args:
        end_times: float64, [workers, iterations], when they are expected to end.
        algorithm: one of ALGORITHMS.

    Raises:
        tf.errors.InvalidArgumentError: no workers or iterations, or times that descend or are not
            finite.
    """
    ends = np.asarray(end_times, np.float64)
    found = Barrier(**call("search_barrier", end_times=ends, algorithm=algorithm))
    return replace(found, iterations=np.array(found.iterations, np.int64))

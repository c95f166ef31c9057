"""ZipLine: where a barrier makes workers wait least, and what the paper compares it with."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import ArrayLike, NDArray

from trepak.ops.loader import call

__all__ = ["ALGORITHMS", "Barrier", "search", "zipline"]


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


def zipline(end_times: ArrayLike | Sequence[Sequence[float]]) -> Barrier:
    """Returns the barrier with the least waiting time; of several, the earliest.

    What the paper's Algorithm 2 returns if a set counts only when it has an end of every worker; in
    O(Rn log Rn) time at most, where that takes O(Rn²).

    Args:
        end_times: predicted ends of iterations, [workers, iterations], in any unit; each worker's
            in ascending order.

    Raises:
        ValueError: no workers or iterations, or end times that descend or are not finite.
    """
    return search(end_times, "zipline")


def search(end_times: ArrayLike | Sequence[Sequence[float]], algorithm: str) -> Barrier:
    """Returns the barrier that an algorithm finds.

    Args:
        end_times: as for `zipline`.
        algorithm: "zipline"; "paper": the same in the form that the paper analyses, O(Rn²);
            "naive": the best of all combinations, O(Rⁿ); "grid_scan" (Algorithm 1): the best set of
            an end of the worker that ends first and the nearest ones of the others, O(R²n), which
            may miss the best; "full_grid_scan": the same for each worker in turn, O(R²n²).

    Raises:
        ValueError: there is no such algorithm, or as `zipline`.
    """
    if algorithm not in ALGORITHMS:
        raise ValueError(
            f"there is no algorithm {algorithm!r}; there are: {', '.join(ALGORITHMS)}."
        )
    matrix = np.ascontiguousarray(end_times, dtype=np.float64)
    if matrix.ndim != 2 or matrix.size == 0:
        raise ValueError(
            f"end times are a matrix of at least one iteration of one worker, [workers, "
            f"iterations]; got shape {list(matrix.shape)}."
        )
    if not np.isfinite(matrix).all() or (np.diff(matrix) < 0).any():
        raise ValueError("each worker's end times must be finite, and must not descend.")
    found = Barrier(**call("search_barrier", end_times=matrix, algorithm=algorithm))
    return replace(found, iterations=np.array(found.iterations, np.int64))

"""What ElasticBSP, SSP or ASP would make of a cluster: a job's scheduler, on recorded times."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from trepak.horovod_ext.elastic_bsp import StepOptions
from trepak.ops import elastic_bsp as native
from trepak.ops.elastic_bsp import Simulated

__all__ = ["Simulated", "intervals_of", "simulate"]


def simulate(
    intervals: ArrayLike, options: StepOptions, steps: int, epochs: Sequence[int] = ()
) -> Simulated:
    """Simulates training, event by event; messages take no time but for what the intervals hold.

    Args:
        intervals: seconds that each rank's steps take, one after another, and from the first again
            when they are used up; [ranks, steps].
        options: how far ranks may go.
        steps: of all ranks together, after which it ends.
        epochs: steps of each epoch, of all ranks together: at its end all flush, which may take a
            few steps more, and go on together; with that of the last one it ends, if it has not
            before. Without any, no epoch ends.

    Raises:
        ValueError: times that are not positive, or no steps.
    """
    times = np.ascontiguousarray(intervals, dtype=np.float64)
    if times.ndim != 2 or times.size == 0 or not (np.isfinite(times) & (times > 0)).all():
        raise ValueError(
            "intervals must be positive seconds of at least one step of each rank, [ranks, steps]."
        )
    if steps < 1 or any(epoch < 1 for epoch in epochs):
        raise ValueError(f"steps must be at least 1, got {steps}, and in epochs {[*epochs]}.")
    return native.simulate(
        times,
        options.model,
        options.lookahead,
        options.staleness,
        options.prediction,
        steps,
        np.cumsum(epochs, dtype=int).tolist(),
    )


def intervals_of(recorded: Any) -> NDArray[np.float64]:
    """Returns each rank's intervals, as many of each, for `simulate`.

    Args:
        recorded: what `recorded_steps` returned on rank 0: float64, [steps, 4].

    Raises:
        ValueError: a rank has no step in it.
    """
    rows = np.asarray(recorded)
    if not len(rows):
        raise ValueError("no step was recorded: rank 0 records them, and only after its first two.")
    ranks = rows[:, 0].astype(int)
    by_rank = [rows[ranks == rank, 2:].sum(axis=1) for rank in range(ranks.max() + 1)]
    least = min(map(len, by_rank))
    if not least:
        raise ValueError("a rank has no recorded step.")
    # A slow rank has taken fewer: its steps come again, the others' are all used.
    most = max(map(len, by_rank))
    return np.stack([np.resize(theirs, most) for theirs in by_rank])

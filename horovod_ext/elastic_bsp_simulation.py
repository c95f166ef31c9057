"""What ElasticBSP, SSP or ASP would make of a cluster: a job's scheduler, on recorded times."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from trepak.horovod_ext.elastic_bsp import StepOptions
from trepak.ops import elastic_bsp as native
from trepak.ops.elastic_bsp import Simulated

__all__ = ["Simulated", "intervals_of", "simulate", "until_of"]


def simulate(
    intervals: ArrayLike,
    options: StepOptions,
    steps: int,
    epochs: Sequence[int] = (),
    until: ArrayLike | None = None,
    begin: float = 0.0,
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
        until: when the next interval took over, in seconds since a record's begin, rising in each
            rank; [ranks, steps]. A step then ends when its rank has done as much as a step is, at
            the speeds that it had in the record at that time: ranks that share a machine or a
            network are slow together, and would soon not be if each took its recorded steps one
            after another. The record begins anew when any rank's is over.
        begin: seconds of that record that are over when the simulation begins.

    Raises:
        ValueError: times that are not positive, or do not rise, or no steps.
    """
    times = np.ascontiguousarray(intervals, dtype=np.float64)
    if times.ndim != 2 or times.size == 0 or not (np.isfinite(times) & (times > 0)).all():
        raise ValueError(
            "intervals must be positive seconds of at least one step of each rank, [ranks, steps]."
        )
    if steps < 1 or any(epoch < 1 for epoch in epochs):
        raise ValueError(f"steps must be at least 1, got {steps}, and in epochs {[*epochs]}.")
    if not (np.isfinite(begin) and begin >= 0):
        raise ValueError(f"begin must be at least 0 seconds of the record, got {begin}.")
    return native.simulate(
        times,
        options.model,
        options.lookahead,
        options.staleness,
        options.prediction,
        steps,
        np.cumsum(epochs, dtype=int).tolist(),
        None if until is None else _checked(until, times),
        begin,
    )


def _checked(until: ArrayLike, intervals: NDArray[np.float64]) -> NDArray[np.float64]:
    times = np.ascontiguousarray(until, dtype=np.float64)
    rises = times.shape == intervals.shape and (np.diff(times, axis=1, prepend=0) > 0).all()
    if not rises or not np.isfinite(times).all():
        raise ValueError(
            "until must be seconds that rise in each rank, above 0, one for each interval, "
            f"{[*intervals.shape]}; got {[*times.shape]}."
        )
    if times[:, -1].min() < intervals.max():
        raise ValueError(
            f"the record must be as long as its longest step, {intervals.max():g} s; "
            f"that of a rank is over after {times[:, -1].min():g} s."
        )
    return times


def intervals_of(recorded: Any) -> NDArray[np.float64]:
    """Returns each rank's intervals, as many of each, for `simulate`.

    Args:
        recorded: what `recorded_steps` returned on rank 0: float64, [steps, 4].

    Raises:
        ValueError: a rank has no step in it.
    """
    by_rank = [theirs[:, 2:].sum(axis=1) for theirs in _by_rank(recorded)]
    # A slow rank has taken fewer: its steps come again, the others' are all used.
    most = max(map(len, by_rank))
    return np.stack([np.resize(theirs, most) for theirs in by_rank])


def until_of(recorded: Any) -> NDArray[np.float64]:
    """Returns when each of `intervals_of` was over, in seconds since the first of all began.

    What a rank waited between two steps goes half to the one and half to the other. Where a rank's
    steps come again, they come as they did, right after its last one.

    Args:
        recorded: see `intervals_of`.

    Raises:
        ValueError: a rank has no step in it.
    """
    by_rank = _by_rank(recorded)
    ends = [theirs[:, 1] for theirs in by_rank]
    begins = [theirs[:, 1] - theirs[:, 2:].sum(axis=1) for theirs in by_rank]
    first, most = min(theirs[0] for theirs in begins), max(map(len, ends))
    found = []
    for end, begin in zip(ends, begins, strict=True):
        over = np.append((end[:-1] + begin[1:]) / 2, end[-1]) - first
        found.append(np.resize(over, most) + np.arange(most) // len(over) * over[-1])
    return np.stack(found)


def _by_rank(recorded: Any) -> list[NDArray[np.float64]]:
    """Returns the recorded steps of each rank."""
    rows = np.asarray(recorded)
    if not len(rows):
        raise ValueError("no step was recorded: rank 0 records them, and only after its first two.")
    ranks = rows[:, 0].astype(int)
    by_rank = [rows[ranks == rank] for rank in range(ranks.max() + 1)]
    if not all(map(len, by_rank)):
        raise ValueError("a rank has no recorded step.")
    return by_rank

"""What ElasticBSP, SSP or ASP would make of a cluster: a job's scheduler, on recorded times."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from trepak.horovod_ext.elastic_bsp import StepOptions
from trepak.ops import elastic_bsp as native
from trepak.ops.elastic_bsp import Simulated

__all__ = ["Record", "Simulated", "record_of", "simulate"]

Floats = NDArray[np.float64]

_TOGETHER = 0.001  # seconds within which ranks that leave a barrier begin their next steps


@dataclass(frozen=True)
class Record:
    """How long steps take each rank, and when.

    Attributes:
        intervals: seconds that a step takes, [ranks, intervals].
        until: when the next interval takes over, in seconds since the record's begin, rising in
            each rank; [ranks, intervals]. None: each is of one step, whenever that is.
        after_barrier: how many times as long the first step after a barrier takes, in which all
            ranks fetch parameters at once; [ranks]. The intervals are without that. None: once.

    Raises:
        ValueError: times or factors that are not positive, or do not rise, or a record that is
            shorter than one of its steps.
    """

    intervals: Floats
    until: Floats | None = None
    after_barrier: Floats | None = None

    def __post_init__(self) -> None:
        """Checks them."""
        times, until, factors = self.intervals, self.until, self.after_barrier
        if times.ndim != 2 or times.size == 0 or not _are_positive(times):
            raise ValueError(
                "intervals must be positive seconds of at least one step of each rank, "
                "[ranks, steps]."
            )
        if until is not None:
            rises = until.shape == times.shape and (np.diff(until, axis=1, prepend=0) > 0).all()
            if not rises or not np.isfinite(until).all():
                raise ValueError(
                    "until must be seconds that rise in each rank, above 0, one for each interval, "
                    f"{[*times.shape]}; got {[*until.shape]}."
                )
            if self.length < times.max():
                raise ValueError(
                    f"the record must be as long as its longest step, {times.max():g} s; "
                    f"that of a rank is over after {self.length:g} s."
                )
        if factors is not None and (factors.shape != times.shape[:1] or not _are_positive(factors)):
            raise ValueError(
                f"after_barrier must be a positive factor for each of {len(times)} ranks, "
                f"got {factors.tolist()}."
            )

    @property
    def length(self) -> float:
        """Seconds until any rank's record is over."""
        return math.inf if self.until is None else float(self.until[:, -1].min())


def _are_positive(values: Floats) -> bool:
    return bool((np.isfinite(values) & (values > 0)).all())


def simulate(
    times: Record | ArrayLike,
    options: StepOptions,
    steps: int,
    epochs: Sequence[int] = (),
    begin: float = 0.0,
) -> Simulated:
    """Simulates training, event by event; messages take no time but for what the times hold.

    Args:
        times: a record, or its intervals. With `until` a step ends when its rank has done as much
            as a step is, at the speeds that it had in the record at that time: ranks that share a
            machine or a network are slow together, and would soon not be if each took its recorded
            steps one after another. The record begins anew when any rank's is over.
        options: how far ranks may go.
        steps: of all ranks together, after which it ends.
        epochs: steps of each epoch, of all ranks together: at its end all flush, which may take a
            few steps more, and go on together; with that of the last one it ends, if it has not
            before. Without any, no epoch ends.
        begin: seconds of the record that are over when the simulation begins.

    Raises:
        ValueError: times that are not positive, or no steps.
    """
    if not isinstance(times, Record):
        times = Record(np.asarray(times, dtype=np.float64))
    if steps < 1 or any(epoch < 1 for epoch in epochs):
        raise ValueError(f"steps must be at least 1, got {steps}, and in epochs {[*epochs]}.")
    if not (np.isfinite(begin) and begin >= 0):
        raise ValueError(f"begin must be at least 0 seconds of the record, got {begin}.")
    return native.simulate(
        times.intervals,
        options.model,
        options.lookahead,
        options.staleness,
        options.prediction,
        steps,
        np.cumsum(epochs, dtype=int).tolist(),
        times.until,
        times.after_barrier,
        begin,
    )


def record_of(recorded: Any) -> Record:
    """Returns a training's record: as many intervals of each rank, as a slow one's come again.

    It begins when the first step of all does. While a rank waits, or its steps are not timed, it
    counts as one of its average speed. Intervals that come again do so as they came, right after
    the last one. The first steps after barriers are those that more than half of the ranks begin
    together.

    Args:
        recorded: what `recorded_steps` returned on rank 0: float64, [steps, 4].

    Raises:
        ValueError: a rank has no step in it.
    """
    by_rank = _by_rank(recorded)
    took = [theirs[:, 2:].sum(axis=1) for theirs in by_rank]
    ends = [theirs[:, 1] for theirs in by_rank]
    begins = [end - interval for end, interval in zip(ends, took, strict=True)]
    after = _after_barriers(begins)
    factors = np.array([_factor(*theirs) for theirs in zip(took, after, strict=True)])
    first = min(theirs[0] for theirs in begins)
    timed = [
        _timed(begin - first, end - first, np.where(fetches, interval / factor, interval))
        for begin, end, interval, fetches, factor in zip(
            begins, ends, took, after, factors, strict=True
        )
    ]
    most = max(len(over) for _, over in timed)
    intervals = [np.resize(interval, most) for interval, _ in timed]
    until = [np.resize(over, most) + np.arange(most) // len(over) * over[-1] for _, over in timed]
    return Record(np.stack(intervals), np.stack(until), factors)


def _timed(begins: Floats, ends: Floats, intervals: Floats) -> tuple[Floats, Floats]:
    """Returns a rank's intervals, average ones between its steps, and until when each holds."""
    waits = begins - np.append(0, ends[:-1]) > _TOGETHER
    over = np.append(ends, begins[waits])
    order = np.argsort(over)
    between = np.full(waits.sum(), intervals.mean())
    return np.append(intervals, between)[order], over[order]


def _by_rank(recorded: Any) -> list[Floats]:
    """Returns the recorded steps of each rank."""
    rows = np.asarray(recorded, dtype=np.float64)
    if not len(rows):
        raise ValueError("no step was recorded: rank 0 records them, and only after its first two.")
    ranks = rows[:, 0].astype(int)
    by_rank = [rows[ranks == rank] for rank in range(ranks.max() + 1)]
    if not all(map(len, by_rank)):
        raise ValueError("a rank has no recorded step.")
    return by_rank


def _after_barriers(begins: Sequence[Floats]) -> list[NDArray[np.bool_]]:
    """Returns of each rank which of its steps are first ones after a barrier, by their begins."""
    every = np.sort(np.concatenate([*begins]))
    found = []
    for theirs in begins:
        together = np.searchsorted(every, theirs + _TOGETHER, "right") - np.searchsorted(
            every, theirs - _TOGETHER, "left"
        )
        found.append(together > max(1, len(begins) // 2))
    return found


def _factor(took: Floats, after_barrier: NDArray[np.bool_]) -> float:
    """Returns how many times as long steps after barriers took as others; 1 if all or none are."""
    if after_barrier.all() or not after_barrier.any():
        return 1.0
    return float(took[after_barrier].mean() / took[~after_barrier].mean())

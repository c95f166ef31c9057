"""How long a training's steps took each rank, and when: what it recorded, for simulations."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

__all__ = ["Record", "record_of"]

Floats = NDArray[np.float64]

_TOGETHER = 0.001  # seconds; what is no farther apart is taken to be at the same time


@dataclass(frozen=True, eq=False)
class Record:
    """How long steps take each rank, and when.

    Attributes:
        intervals: seconds that a step takes, [ranks, intervals].
        until: when the next interval takes over, in seconds since the record's begin, rising in
            each rank; [ranks, intervals]. None: each is of one step, whenever that is.
        after_barrier: how many times as long the first step after a barrier takes, in which all
            ranks fetch parameters at once; [ranks]. The intervals are without that. None: it takes
            as long as others.

    Raises:
        ValueError: times or factors that are not positive, or do not rise, or a record that is
            shorter than one of its steps.
    """

    intervals: Floats
    until: Floats | None = None
    after_barrier: Floats | None = None

    def __post_init__(self) -> None:
        """Checks them."""
        for name in ("intervals", "until", "after_barrier"):
            if (given := getattr(self, name)) is not None:
                values = np.ascontiguousarray(given, dtype=np.float64)
                object.__setattr__(self, name, values)
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
                f"after_barrier must be a positive factor for each of {len(times)} ranks; "
                f"got {[*factors.shape]}, {factors.flat[:8]}."
            )

    @property
    def length(self) -> float:
        """Seconds until any rank's record is over."""
        return math.inf if self.until is None else float(self.until[:, -1].min())


def _are_positive(values: Floats) -> bool:
    return bool((np.isfinite(values) & (values > 0)).all())


class _Steps(NamedTuple):
    """A rank's recorded steps; seconds since the record's begin, [steps].

    Attributes:
        begins: of the steps.
        ends: of the steps.
        intervals: that they would have taken, had none been the first one after a barrier.
    """

    begins: Floats
    ends: Floats
    intervals: Floats


def record_of(recorded: Any, barriers: bool = True) -> Record:
    """Returns a training's record, from when the first step of all begins to the last one's end.

    While a rank waits, or its steps are not timed, it is taken to be as fast as on average, but for
    what others' steps took longer then; no step is taken to be longer than the record. Steps that
    more than half of the ranks begin together are the first ones after barriers.

    Args:
        recorded: what `recorded_steps` returned on rank 0: float64, [steps, 4].
        barriers: there were some. With SSP and ASP there are none, though ranks that have waited
            for the same one begin together too.

    Raises:
        ValueError: a rank has no step in it, or it is of another shape.
    """
    by_rank = _by_rank(recorded)
    took = [theirs[:, 2:].sum(axis=1) for theirs in by_rank]
    ends = [theirs[:, 1] for theirs in by_rank]
    begins = [end - time for end, time in zip(ends, took, strict=True)]
    first, last = min(theirs[0] for theirs in begins), max(theirs[-1] for theirs in ends)
    after = _after_barriers(begins) if barriers else [np.zeros(len(end), bool) for end in ends]
    factors = np.array([_factor(*theirs) for theirs in zip(took, after, strict=True)])
    ranks = [
        _Steps(begin - first, end - first, np.where(fetches, time / factor, time))
        for begin, end, time, fetches, factor in zip(
            begins, ends, took, after, factors, strict=True
        )
    ]
    timed = [_timed(rank, ranks, last - first) for rank in ranks]
    # What a rank is taken to be while others stand still could be longer than all of the record.
    length = min(over[-1] for _, over in timed)
    # After the record's end those of who has fewer come again.
    most = max(len(over) for _, over in timed)
    return Record(
        np.stack([np.resize(np.minimum(time, length), most) for time, _ in timed]),
        np.stack(
            [np.resize(over, most) + np.arange(most) // len(over) * over[-1] for _, over in timed]
        ),
        factors,
    )


def _timed(mine: _Steps, ranks: Sequence[_Steps], last: float) -> tuple[Floats, Floats]:
    """Returns intervals of a rank's steps and of the times between, and until when each holds."""
    since, nexts = np.append(0, mine.ends), np.append(mine.begins, last)
    waits = nexts - since > _TOGETHER
    between = mine.intervals.mean() * _slowness(ranks, since[waits], nexts[waits])
    over = np.append(mine.ends, nexts[waits])
    order = np.argsort(over)
    return np.append(mine.intervals, between)[order], over[order]


def _slowness(ranks: Sequence[_Steps], since: Floats, until: Floats) -> Floats:
    """Returns how many times as long as on average ranks' steps took in given times, [times].

    Who was at no step then does not count; 1 if nobody was.
    """
    took, usual = np.zeros(len(since)), np.zeros(len(since))
    for rank in ranks:
        times = np.maximum.accumulate(np.stack([rank.begins, rank.ends], axis=1).ravel())
        lasted = times[1::2] - times[::2]
        for total, seconds in (
            (took, lasted),
            (usual, lasted * rank.intervals.mean() / rank.intervals),
        ):
            done = np.stack([np.cumsum(seconds) - seconds, np.cumsum(seconds)], axis=1).ravel()
            total += np.interp(until, times, done) - np.interp(since, times, done)
    return np.divide(took, usual, out=np.ones(len(since)), where=usual > _TOGETHER)


def _by_rank(recorded: Any) -> list[Floats]:
    """Returns the recorded steps of each rank."""
    rows = np.asarray(recorded, dtype=np.float64)
    if rows.ndim != 2 or rows.shape[1] != 4:
        raise ValueError(
            f"recorded must be what recorded_steps returns, [steps, 4]; got {[*rows.shape]}."
        )
    if not len(rows):
        raise ValueError("no step was recorded: rank 0 records them, and only after its first two.")
    ranks = rows[:, 0].astype(int)
    by_rank = [rows[ranks == rank] for rank in range(ranks.max() + 1)]
    if not all(map(len, by_rank)):
        raise ValueError("a rank has no recorded step.")
    return by_rank


def _after_barriers(begins: Sequence[Floats]) -> list[NDArray[np.bool_]]:
    """Returns of each rank which of its steps are first ones after a barrier, by their begins."""

    def together(times: Floats, others: Floats) -> NDArray[np.bool_]:
        at = np.searchsorted(others, times - _TOGETHER)
        return np.searchsorted(others, times + _TOGETHER, "right") > at

    return [
        np.sum([together(times, others) for others in begins], axis=0) > max(1, len(begins) // 2)
        for times in begins
    ]


def _factor(took: Floats, after_barrier: NDArray[np.bool_]) -> float:
    """Returns how many times as long steps after barriers took as others; 1 if all or none are."""
    if after_barrier.all() or not after_barrier.any():
        return 1.0
    return float(took[after_barrier].mean() / took[~after_barrier].mean())

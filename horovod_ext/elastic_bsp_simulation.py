"""What ElasticBSP, SSP or ASP would make of a cluster: a job's scheduler, on recorded times."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from numbers import Real
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from trepak.horovod_ext.elastic_bsp import StepOptions, whole
from trepak.horovod_ext.elastic_bsp_record import Record, record_of
from trepak.ops.loader import call

__all__ = ["Record", "Schedule", "Simulated", "record_of", "simulate"]

_MOST = 10**12  # steps


class Schedule(NamedTuple):
    """What the rank that plans, rank 0, has seen and planned since the start; times in seconds.

    Attributes:
        barriers: that all have passed.
        steps: of all ranks.
        waiting: of all ranks.
        longest_waits: of who came to a barrier first, summed up.
        predicted_waits: what these were planned to be.
        predictions: of ends of steps.
        error: how far off these were, in steps of that rank, summed up.
        taken_out: how often a rank did not answer, and others went on without it.
        planning: that planning took.
    """

    barriers: int
    steps: int
    waiting: float
    longest_waits: float
    predicted_waits: float
    predictions: int
    error: float
    taken_out: int
    planning: float


class Simulated(NamedTuple):
    """What comes of simulated training.

    Attributes:
        seconds: that it takes.
        waiting: seconds that each rank waits for others, float64, [ranks].
        steps: that each rank takes, int64, [ranks].
        schedule: what was planned.
        recorded: rank, begin and end of each step, in the order of their ends, where that was asked
            for; float64, [steps, 3].
    """

    seconds: float
    waiting: NDArray[np.float64]
    steps: NDArray[np.int64]
    schedule: Schedule
    recorded: NDArray[np.float64]


def _is_time(value: Any) -> bool:
    return isinstance(value, Real) and 0 <= float(value) < math.inf


def simulate(
    times: Record | ArrayLike,
    options: StepOptions,
    steps: int,
    epochs: Sequence[int] = (),
    begin: float = 0.0,
    record: bool = True,
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
        begin: seconds of the record that are over when the simulation begins; without `until` it
            means nothing.
        record: return when each step began and ended, which takes longer than to simulate it.

    Raises:
        ValueError: times that are not positive, or numbers of steps that are not, or not whole.
        TypeError: the options are no StepOptions.
    """
    if not isinstance(times, Record):
        times = Record(np.asarray(times))
    if not isinstance(options, StepOptions):
        raise TypeError(f"options must be StepOptions, got {options!r}.")
    if not all(1 <= whole(count) <= _MOST for count in (steps, *epochs)):
        raise ValueError(
            f"steps must be whole numbers from 1 to {_MOST}, got {steps}, and in epochs "
            f"{[*epochs]}."
        )
    if not _is_time(begin):
        raise ValueError(f"begin must be at least 0 seconds of the record, got {begin}.")
    made = call(
        "simulate_elastic_bsp",
        intervals=times.intervals,
        until=[] if times.until is None else times.until,
        after_barrier=[] if times.after_barrier is None else times.after_barrier,
        begin=begin,
        options=dataclasses.asdict(options),
        steps=steps,
        pauses=np.cumsum(epochs, dtype=int),
        record=bool(record),
    )
    return Simulated(
        made["seconds"],
        np.array(made["waiting"], np.float64),
        np.array(made["steps"], np.int64),
        Schedule(**made["schedule"]),
        np.array(made["recorded"], np.float64).reshape(-1, 3),
    )

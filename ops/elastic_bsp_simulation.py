"""ElasticBSP's scheduler, and SSP's and ASP's, run natively on given times."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from trepak.ops.loader import call

__all__ = ["Schedule", "Simulated", "simulate"]


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
        recorded: rank, begin and end of each step, in the order of their ends; float64, [steps, 3].
    """

    seconds: float
    waiting: NDArray[np.float64]
    steps: NDArray[np.int64]
    schedule: Schedule
    recorded: NDArray[np.float64]


def simulate(
    intervals: Any,
    options: Mapping[str, Any],
    steps: int,
    pauses: Sequence[int] = (),
    until: Any = None,
    after_barrier: Any = None,
    begin: float = 0.0,
) -> Simulated:
    """Runs the scheduler on given times, until all ranks together have taken so many steps.

    Args:
        intervals: seconds that each rank's steps take, one after another and then again; float64,
            [ranks, steps].
        options: how far ranks may go, what JSON can hold; see `horovod_ext.elastic_bsp`.
        steps: of all ranks together.
        pauses: after how many steps of all ranks together an epoch ends.
        until: seconds since a record's begin when the next interval's speed takes over, rising in
            each rank, to go by these speeds instead; float64, [ranks, steps].
        after_barrier: how many times as long the first step after a barrier takes; float64,
            [ranks].
        begin: seconds of that record that are over.

    Raises:
        tf.errors.InvalidArgumentError: there is no rank, or no step, or not a time for each, or not
            a factor for each rank. That times are positive, finite and rise is not checked; see
            `horovod_ext.elastic_bsp_simulation.Record`.
    """
    made = call(
        "simulate_elastic_bsp",
        intervals=np.asarray(intervals, np.float64),
        until=np.asarray([] if until is None else until, np.float64),
        after_barrier=np.asarray([] if after_barrier is None else after_barrier, np.float64),
        begin=begin,
        options=options,
        steps=steps,
        pauses=list(pauses),
    )
    return Simulated(
        made["seconds"],
        np.array(made["waiting"], np.float64),
        np.array(made["steps"], np.int64),
        Schedule(**made["schedule"]),
        np.array(made["recorded"], np.float64).reshape(-1, 3),
    )

"""ElasticBSP's native half, and SSP's and ASP's: a step's change goes out, parameters come in."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from trepak.ops.job import Job
from trepak.ops.loader import load

__all__ = [
    "ElasticBspCounters",
    "ElasticBspOptions",
    "Schedule",
    "assign_parameters",
    "drain_elastic_bsp",
    "elastic_bsp_counters",
    "end_step",
    "fetch_parameters",
    "recorded_steps",
    "schedule",
    "schedule_of",
    "start_elastic_bsp",
]


@dataclass(frozen=True)
class ElasticBspOptions:
    """How far ranks may go, for one optimizer; but for `job`, the same on all ranks.

    Attributes:
        stream: the optimizer's number.
        job: this process's place in it.
        parameters: the key by which the parameter servers know the job's.
        model: "elastic_bsp": to a barrier that is planned so that waiting is least; "ssp": not too
            far ahead of the slowest; "asp": on and on.
        lookahead: steps of each rank that a barrier may be away.
        staleness: steps that one may be ahead of the slowest.
        prediction: "last", "mean" or "exponential": of a rank's latest steps, how long its next
            ones will take.
        labels: by parameter, the name under which Geryon's map_table knows it.
        dtype: of the parameters, float32 or float64.
        shapes: of the parameters.
        dscp: what marks the packets of the controller and its workers.
    """

    stream: int
    job: Job
    parameters: int
    model: str
    lookahead: int
    staleness: int
    prediction: str
    labels: Sequence[str]
    dtype: Any
    shapes: Sequence[Any]
    dscp: int = 46


class ElasticBspCounters(NamedTuple):
    """What has happened on this rank since the start.

    Attributes:
        steps: that it has ended.
        barriers: that it has passed.
        met: ranks that passed these with it, and itself, summed up.
        not_finite: steps that were left out, since what they made was not finite.
        waiting_seconds: for other ranks.
        exchange_seconds: for parameters.
    """

    steps: int
    barriers: int
    met: int
    not_finite: int
    waiting_seconds: float
    exchange_seconds: float


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


def start_elastic_bsp(options: ElasticBspOptions) -> tuple[str, str]:
    """Starts it; it listens for other ranks' flows. The parameter servers must run.

    Returns:
        The address of this rank's worker, and that of the controller, empty but on rank 0.

    Raises:
        tf.errors.UnknownError: the address can't be listened at, or it runs already.
    """
    import tensorflow as tf

    with tf.init_scope(), tf.device("CPU:0"):
        worker, controller = (
            load()
            .trepak_elastic_bsp_start(
                **options.job.arguments(),
                stream=options.stream,
                dscp=[options.dscp],
                parameters=options.parameters,
                model=options.model,
                lookahead=options.lookahead,
                staleness=options.staleness,
                prediction=options.prediction,
                labels=list(options.labels),
                T=tf.as_dtype(options.dtype),
                shapes=list(options.shapes),
            )
            .numpy()
        )
    return worker.decode(), controller.decode()


def assign_parameters(stream: int, values: Sequence[Any]) -> Any:
    """Sets the job's parameters; for one rank, before all fetch them.

    Args:
        stream: the optimizer's number.
        values: tensors of the dtype and shapes that `start_elastic_bsp` was given.

    Raises:
        HorovodInternalError: it has failed.
    """
    return load().trepak_elastic_bsp_assign(list(values), stream=stream)


def fetch_parameters(stream: int, dtype: Any, shapes: Sequence[Any]) -> list[Any]:
    """Returns the job's parameters, for training to go on from, and counts all ranks' samples.

    Args:
        stream: the optimizer's number.
        dtype: what `start_elastic_bsp` was given.
        shapes: what `start_elastic_bsp` was given.

    Raises:
        HorovodInternalError: it has failed.
    """
    made = load().trepak_elastic_bsp_fetch(
        num_values=len(shapes), T=dtype, shapes=list(shapes), stream=stream
    )
    return list(made)


def end_step(stream: int, values: Sequence[Any], finite: Any) -> list[Any]:
    """Adds what a step has changed to the job's parameters; counts all ranks' samples.

    Args:
        stream: the optimizer's number.
        values: what the step has made of the values that it went on from: those that this function
            or `fetch_parameters` returned last.
        finite: bool tensor, whether the step's gradients were; if not, it is left out.

    Returns:
        The job's parameters, for the next step to go on from, as soon as this rank may.

    Raises:
        HorovodInternalError: it has failed, or others did not come to a barrier in time.
    """
    made = load().trepak_elastic_bsp_step(
        list(values), finite, shapes=[value.shape for value in values], stream=stream
    )
    return list(made)


def drain_elastic_bsp(stream: int, values: Sequence[Any]) -> Any:
    """Waits until all ranks do.

    Args:
        stream: the optimizer's number.
        values: this rank's parameters; if a user has set them since the last step, that counts as
            a change.

    Raises:
        HorovodInternalError: it has failed, or a rank did not drain in time.
    """
    return load().trepak_elastic_bsp_drain(list(values), stream=stream)


def elastic_bsp_counters(stream: int) -> ElasticBspCounters:
    """Returns what has been counted on this rank; zeros where nothing runs."""
    import tensorflow as tf

    with tf.init_scope(), tf.device("CPU:0"):
        counted = load().trepak_elastic_bsp_counters(stream=stream).numpy().tolist()
    *counts, waiting, exchange = counted
    return ElasticBspCounters._make([*counts, 1e-9 * waiting, 1e-9 * exchange])


def schedule(stream: int) -> Schedule:
    """Returns what has been planned, on rank 0; zeros on others, and where nothing runs."""
    import tensorflow as tf

    with tf.init_scope(), tf.device("CPU:0"):
        return schedule_of(load().trepak_elastic_bsp_schedule(stream=stream))


def recorded_steps(stream: int) -> NDArray[np.float64]:
    """Returns the times of the first 100,000 steps, on rank 0.

    On other ranks there are none, nor where nothing runs.

    Returns:
        float64, [steps, 4]: rank, end on rank 0's clock, computing and communication of each, in
        seconds. What a rank waits for others belongs to no step.
    """
    import tensorflow as tf

    with tf.init_scope(), tf.device("CPU:0"):
        return np.array(load().trepak_elastic_bsp_recorded(stream=stream))


def schedule_of(counters: Any) -> Schedule:
    """Returns an op's counters as a schedule.

    Args:
        counters: see the runtime's ElasticBspScheduler::Counters, in their order; float64, [9].
    """
    planned = Schedule(*counters.numpy().tolist())
    counts = ("barriers", "steps", "predictions", "taken_out")
    return planned._replace(**{name: int(getattr(planned, name)) for name in counts})

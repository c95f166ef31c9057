"""RNA's native half: gradients of a step go out, finished rounds come in."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from trepak.ops.job import Job
from trepak.ops.loader import load, load_horovod_driver

__all__ = [
    "RnaCounters",
    "RnaOptions",
    "RnaRound",
    "assign_parameters",
    "await_round",
    "bring_last_change",
    "drain_rna",
    "exchange_parameters",
    "fetch_parameters",
    "finished_rounds",
    "read_round",
    "remaining_rounds",
    "rna_counters",
    "start_rna",
    "write_gradients",
]


@dataclass(frozen=True)
class RnaOptions:
    """How RNA runs for one optimizer; but for `job`, the same on all ranks.

    Attributes:
        stream: the optimizer's number.
        job: this process's place in it.
        members: ranks of this rank's group; the first one decides when rounds start.
        process_set: Horovod's number of the group.
        period: rounds from one exchange of the groups to the next; 0 if there is but one group.
        parameters: the key by which the parameter servers know the job's; None if groups share
            none.
        choices: ranks that are probed per round.
        quorum: answers that start a round.
        seed: of the draws.
        staleness: gradients that are more rounds stale are dropped.
        sums: several gradients of a rank are added up; otherwise their weighted mean is taken.
        aligned: a step belongs to the round of its number, and `await_round` waits for that one.
        dtype: of the gradients, float32 or float64.
        shapes: of the gradients.
        dscp: what marks the packets of the controller and its workers.
    """

    stream: int
    job: Job
    members: Sequence[int]
    process_set: int
    period: int
    parameters: int | None
    choices: int
    quorum: int
    seed: int
    staleness: int
    sums: bool
    aligned: bool
    dtype: Any
    shapes: Sequence[Any]
    dscp: int = 46


class RnaRound(NamedTuple):
    """The result of a round, or of an exchange after one.

    Attributes:
        gradients: the mean over the ranks that brought one, for each variable; after an exchange,
            the parameters to adopt.
        share: of the group's ranks, that brought one; float64, [].
        rate: the mean of their learning rates; float32, [].
        is_exchange: this is what came of an exchange with other groups; bool, [].
        exchanges: this rank is to exchange its parameters when it has applied this; bool, [].
    """

    gradients: list[Any]
    share: Any
    rate: Any
    is_exchange: Any
    exchanges: Any


class RnaCounters(NamedTuple):
    """What RNA has done on this rank since it was started.

    Attributes:
        rounds: that have finished.
        contributed: of these, in which this rank brought a gradient.
        gradients: that it brought; several in one round count each.
        dropped: gradients that were too stale.
        not_finite: gradients that were not finite.
        staleness: of the stalest gradient brought to each round, summed up; in rounds.
        contributors: ranks that brought a gradient, summed up over the rounds.
        steps: of this rank, that were timed.
        step_seconds: of these, from one's end to the next one's, summed up.
        copy_seconds: in which steps copied gradients to rounds and from them, and combined them
            (Table 5.5); what the thread that sums rounds copies meanwhile is not in it.
    """

    rounds: int
    contributed: int
    gradients: int
    dropped: int
    not_finite: int
    staleness: int
    contributors: int
    steps: int
    step_seconds: float
    copy_seconds: float


def start_rna(options: RnaOptions) -> tuple[str, str]:
    """Starts RNA; it listens for other ranks' flows.

    Returns:
        The address of this rank's worker, and that of its group's controller, empty but on the
        group's first rank.

    Raises:
        ImportError: Horovod has not been loaded, or is another than the one trepak was built with.
        tf.errors.UnknownError: the address can't be listened at, or RNA runs already.
    """
    import tensorflow as tf

    load_horovod_driver()
    with tf.init_scope(), tf.device("CPU:0"):
        worker, controller = (
            load()
            .trepak_rna_start(
                **options.job.arguments(),
                stream=options.stream,
                dscp=[options.dscp],
                members=list(options.members),
                process_set=options.process_set,
                period=options.period,
                parameters=-1 if options.parameters is None else options.parameters,
                choices=options.choices,
                quorum=options.quorum,
                seed=options.seed,
                staleness=options.staleness,
                sums=options.sums,
                aligned=options.aligned,
                T=tf.as_dtype(options.dtype),
                shapes=list(options.shapes),
            )
            .numpy()
        )
    return worker.decode(), controller.decode()


def write_gradients(stream: int, gradients: Sequence[Any], rate: Any) -> Any:
    """Hands the gradients of what this rank was dealt over, without waiting.

    Args:
        stream: the optimizer's number.
        gradients: tensors of the dtype and shapes that `start_rna` was given. If one of them is not
            finite, the step contributes nothing.
        rate: the learning rate with which they are to be applied; float32, [].

    Raises:
        HorovodInternalError: RNA has failed.
    """
    return load().trepak_rna_write(list(gradients), rate, stream=stream)


def await_round(stream: int) -> Any:
    """Waits for a round to read; not if this rank has nothing that a round could take.

    Raises:
        HorovodInternalError: RNA has failed, or no round has ended in time.
    """
    return load().trepak_rna_await(stream=stream)


def drain_rna(stream: int) -> Any:
    """Waits until all ranks drain, and what they still had has gone into a last round.

    Raises:
        HorovodInternalError: RNA has failed, or a rank did not drain in time.
    """
    return load().trepak_rna_drain(stream=stream)


def finished_rounds(stream: int) -> Any:
    """Returns how many rounds have finished and were not read; int32, []."""
    return load().trepak_rna_finished(stream=stream)


def read_round(stream: int, dtype: Any, shapes: Sequence[Any]) -> RnaRound:
    """Returns the oldest round that has finished and was not read, and counts its samples.

    Args:
        stream: the optimizer's number.
        dtype: what `start_rna` was given.
        shapes: what `start_rna` was given.

    Raises:
        HorovodInternalError: RNA has failed, or there is none.
    """
    made = load().trepak_rna_read(
        num_gradients=len(shapes), T=dtype, shapes=list(shapes), stream=stream
    )
    return RnaRound(list(made.gradients), made.share, made.rate, made.is_exchange, made.exchanges)


def remaining_rounds(stream: int) -> Any:
    """Returns how many rounds are to be read after a drain, finished or not; int32, []."""
    return load().trepak_rna_remaining(stream=stream)


def exchange_parameters(stream: int, values: Sequence[Any]) -> Any:
    """Exchanges this rank's parameters with other groups, without waiting.

    Args:
        stream: the optimizer's number.
        values: tensors of the dtype and shapes that `start_rna` was given.

    Raises:
        HorovodInternalError: RNA has failed, or the round read last has asked for no exchange.
    """
    return load().trepak_rna_exchange(list(values), stream=stream)


def bring_last_change(stream: int, values: Sequence[Any]) -> Any:
    """Adds what this rank's group has changed to the job's parameters, if it leads the group.

    Args:
        stream: the optimizer's number.
        values: as for `exchange_parameters`.

    Raises:
        HorovodInternalError: RNA has failed.
    """
    return load().trepak_rna_bring_last_change(list(values), stream=stream)


def assign_parameters(stream: int, values: Sequence[Any]) -> Any:
    """Sets the job's parameters; for one rank, before all fetch them.

    Args:
        stream: the optimizer's number.
        values: as for `exchange_parameters`.

    Raises:
        HorovodInternalError: RNA has failed.
    """
    return load().trepak_rna_assign(list(values), stream=stream)


def fetch_parameters(stream: int, dtype: Any, shapes: Sequence[Any]) -> list[Any]:
    """Returns the job's parameters, for training to go on from, and counts others' samples.

    Args:
        stream: the optimizer's number.
        dtype: what `start_rna` was given.
        shapes: what `start_rna` was given.

    Raises:
        HorovodInternalError: RNA has failed.
    """
    made = load().trepak_rna_fetch(
        num_values=len(shapes), T=dtype, shapes=list(shapes), stream=stream
    )
    return list(made)


def rna_counters(stream: int) -> RnaCounters:
    """Returns what RNA has counted on this rank."""
    import tensorflow as tf

    with tf.init_scope(), tf.device("CPU:0"):
        counted = load().trepak_rna_counters(stream=stream).numpy().tolist()
    *counts, step, copy = counted
    return RnaCounters._make([*counts, 1e-9 * step, 1e-9 * copy])

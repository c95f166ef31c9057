"""AD-PSGD's native half: this rank's parameters, averaged with other ranks' meanwhile."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from trepak.ops.job import Job
from trepak.ops.loader import load

__all__ = [
    "AdpsgdCounters",
    "AdpsgdOptions",
    "add_change",
    "adpsgd_counters",
    "assign_parameters",
    "bring_change",
    "load_parameters",
    "settle",
    "show_parameters",
    "start_adpsgd",
]


@dataclass(frozen=True)
class AdpsgdOptions:
    """How AD-PSGD runs for one optimizer; but for `job`, the same on all ranks.

    Attributes:
        stream: the optimizer's number.
        job: this process's place in it.
        seed: of the draws.
        dtype: of the parameters, float32 or float64.
        shapes: of the parameters.
        dscp: what marks the packets.
    """

    stream: int
    job: Job
    seed: int
    dtype: Any
    shapes: Sequence[Any]
    dscp: int = 0


class AdpsgdCounters(NamedTuple):
    """What AD-PSGD has done on this rank since it was started.

    Attributes:
        averagings: that this rank has taken part in.
        steps: of this rank.
    """

    averagings: int
    steps: int


def start_adpsgd(options: AdpsgdOptions) -> str:
    """Starts AD-PSGD; it listens for other ranks' flows.

    Returns:
        The address of this rank's peer.

    Raises:
        tf.errors.UnknownError: the address can't be listened at, or it runs already.
    """
    import tensorflow as tf

    with tf.init_scope(), tf.device("CPU:0"):
        address: bytes = (
            load()
            .trepak_adpsgd_start(
                **options.job.arguments(),
                stream=options.stream,
                dscp=[options.dscp],
                seed=options.seed,
                T=tf.as_dtype(options.dtype),
                shapes=list(options.shapes),
            )
            .numpy()
        )
    return address.decode()


def assign_parameters(stream: int, values: Sequence[Any]) -> Any:
    """Sets this rank's parameters: tensors of the dtype and shapes that it was started with.

    Raises:
        HorovodInternalError: AD-PSGD has failed.
    """
    return load().trepak_adpsgd_assign(list(values), stream=stream)


def show_parameters(stream: int, values: Sequence[Any]) -> Any:
    """Says that training goes on from other values than this rank's parameters.

    Raises:
        HorovodInternalError: AD-PSGD has failed.
    """
    return load().trepak_adpsgd_show(list(values), stream=stream)


def add_change(stream: int, values: Sequence[Any]) -> Any:
    """Adds a step's change to this rank's parameters, and begins to average them.

    Args:
        stream: the optimizer's number.
        values: what training has made of the values that it went on from: those that were loaded,
            assigned or shown last.

    Raises:
        HorovodInternalError: AD-PSGD has failed.
    """
    return load().trepak_adpsgd_add(list(values), stream=stream)


def bring_change(stream: int, values: Sequence[Any]) -> Any:
    """Adds a change that is not a step's to this rank's parameters, and begins no averaging.

    Args:
        stream: the optimizer's number.
        values: what was made of those that were loaded, assigned or shown last.

    Raises:
        HorovodInternalError: AD-PSGD has failed.
    """
    return load().trepak_adpsgd_bring(list(values), stream=stream)


def load_parameters(stream: int, dtype: Any, shapes: Sequence[Any]) -> list[Any]:
    """Returns this rank's parameters, to go on from; counts the samples all ranks have taken.

    Args:
        stream: the optimizer's number.
        dtype: what `start_adpsgd` was given.
        shapes: what `start_adpsgd` was given.

    Raises:
        HorovodInternalError: AD-PSGD has failed.
    """
    made = load().trepak_adpsgd_load(
        num_values=len(shapes), T=dtype, shapes=list(shapes), stream=stream
    )
    return list(made)


def settle(stream: int) -> Any:
    """Waits until no averaging that this rank began is on its way.

    Raises:
        HorovodInternalError: AD-PSGD has failed.
    """
    return load().trepak_adpsgd_settle(stream=stream)


def adpsgd_counters(stream: int) -> AdpsgdCounters:
    """Returns what AD-PSGD has counted on this rank."""
    import tensorflow as tf

    with tf.init_scope(), tf.device("CPU:0"):
        return AdpsgdCounters(*load().trepak_adpsgd_counters(stream=stream).numpy().tolist())

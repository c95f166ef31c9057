"""The native engine of this process: start, connect, count, stop."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from trepak.ops.job import Job
from trepak.ops.loader import load

__all__ = [
    "EngineCounters",
    "EngineOptions",
    "connect_engine",
    "engine_counters",
    "start_engine",
    "stop_engine",
]


@dataclass(frozen=True)
class EngineOptions:
    """How the engine of one process runs; but for `job`, the same on all ranks.

    Attributes:
        job: this process's place in it.
        servers: ranks that run a parameter server.
        split: split every variable evenly over the servers; otherwise whole ones go round robin.
        slice_elements: pieces with more elements are cut; 0 cuts nothing.
        fixed_order: sum in the order of ranks, so that the same gradients give the same bits.
        dscp: what marks the packets of each priority, 0 to 63, the highest first.
        by_layer: what earlier layers need overtakes the rest in every queue of this host.
    """

    job: Job
    servers: Sequence[int]
    split: bool = True
    slice_elements: int = 1024 * 1024
    fixed_order: bool = False
    dscp: Sequence[int] = (46, 0)
    by_layer: bool = False


def start_engine(options: EngineOptions) -> tuple[str, str]:
    """Starts the engine; it listens for other ranks' flows.

    Returns:
        The address of this rank's server, empty if it is none, and that of its client.

    Raises:
        tf.errors.UnknownError: the address can't be listened at, or the engine runs already.
    """
    import tensorflow as tf

    with tf.init_scope(), tf.device("CPU:0"):
        server, client = (
            load()
            .trepak_engine_start(
                **options.job.arguments(),
                servers=list(options.servers),
                split=options.split,
                slice_elements=options.slice_elements,
                fixed_order=options.fixed_order,
                dscp=list(options.dscp),
                by_layer=options.by_layer,
            )
            .numpy()
        )
    return server.decode(), client.decode()


def connect_engine(servers: Sequence[str], clients: Sequence[str]) -> None:
    """Opens this rank's flows.

    Args:
        servers: by rank, the address of its server; empty where there is none.
        clients: by rank, the address of its client.

    Raises:
        tf.errors.UnknownError: a rank did not answer in time, or is not of this job.
    """
    import tensorflow as tf

    with tf.init_scope(), tf.device("CPU:0"):
        load().trepak_engine_connect(tf.constant(list(servers)), tf.constant(list(clients)))


def stop_engine(patience_seconds: float = 0.0) -> None:
    """Ends the engine's threads and flows; what waits for it fails. Without one, does nothing.

    Args:
        patience_seconds: how long other ranks may take to end theirs, before their flows are cut.
    """
    import tensorflow as tf

    with tf.init_scope(), tf.device("CPU:0"):
        load().trepak_engine_stop(patience_milliseconds=round(1000 * patience_seconds))


class EngineCounters(NamedTuple):
    """What the engine has counted since it started.

    Attributes:
        bytes_by_priority: payload bytes sent to other ranks, the highest priority first.
        lookup_seconds: what choosing priorities has taken in total, in seconds; of all engines of
            this process.
        served_bytes: payload bytes that came to this rank's server.
        serving_seconds: the CPU time that they took there.
    """

    bytes_by_priority: list[int]
    lookup_seconds: float
    served_bytes: int
    serving_seconds: float


def engine_counters() -> EngineCounters:
    """Returns the engine's counters."""
    import tensorflow as tf

    with tf.init_scope(), tf.device("CPU:0"):
        counted, *scalars = load().trepak_engine_counters()
    lookup, served, serving = (int(scalar.numpy()) for scalar in scalars)
    return EngineCounters([int(n) for n in counted.numpy()], 1e-9 * lookup, served, 1e-9 * serving)

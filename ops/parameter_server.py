"""The native engine: this process's parameter server, and the gradients that go through it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from trepak.ops.loader import load

__all__ = [
    "EngineOptions",
    "connect_engine",
    "deliver_gradient",
    "push_gradient",
    "register_variable",
    "start_engine",
    "stop_engine",
]


@dataclass(frozen=True)
class EngineOptions:
    """How the engine of one process runs; but for `host`, the same on all ranks.

    Attributes:
        rank: this process's.
        size: number of ranks.
        host: an address of this machine that the other ranks can reach.
        secret: 32 bytes that only this job knows.
        servers: ranks that run a parameter server.
        split: split every variable evenly over the servers; otherwise whole ones go round robin.
        slice_elements: pieces with more elements are cut; 0 cuts nothing.
        fixed_order: sum in the order of ranks, so that the same gradients give the same bits.
        dscp: what marks the packets of each priority, 0 to 63, the highest first.
        deadline_seconds: of every wait.
    """

    rank: int
    size: int
    host: str
    secret: bytes = field(repr=False)
    servers: Sequence[int]
    split: bool = True
    slice_elements: int = 1024 * 1024
    fixed_order: bool = False
    dscp: Sequence[int] = (46, 0)
    deadline_seconds: float = 60.0


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
                secret=tf.constant(options.secret),
                rank=options.rank,
                size=options.size,
                host=options.host,
                deadline_milliseconds=round(1000 * options.deadline_seconds),
                servers=list(options.servers),
                split=options.split,
                slice_elements=options.slice_elements,
                fixed_order=options.fixed_order,
                dscp=list(options.dscp),
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


def stop_engine() -> None:
    """Ends the engine's threads and flows; what waits for it fails. Without one, does nothing."""
    import tensorflow as tf

    with tf.init_scope(), tf.device("CPU:0"):
        load().trepak_engine_stop()


def register_variable(key: int, label: str, dtype: Any, elements: int) -> None:
    """Makes a variable known to the engine.

    Args:
        key: its number, the same on all ranks.
        label: its name.
        dtype: of its gradients, float32 or float64.
        elements: how many it has.

    Raises:
        tf.errors.UnknownError: another one has that key, or the engine has failed.
    """
    import tensorflow as tf

    with tf.init_scope(), tf.device("CPU:0"):
        load().trepak_register_variable(
            key=key, label=label, T=tf.as_dtype(dtype), elements=elements
        )


def push_gradient(handle: Any, gradient: Any, key: int, label: str, factor: float) -> Any:
    """Pushes a gradient to the parameter servers, without waiting.

    Args:
        handle: the variable's resource handle, which orders this among other ops on the variable.
        gradient: a float32 or float64 tensor.
        key: what `register_variable` was given.
        label: what `register_variable` was given; its place in the network decides the priority.
        factor: what the sum over all ranks is multiplied with.
    """
    return load().trepak_push_gradient(handle, gradient, key=key, label=label, factor=factor)


def deliver_gradient(handle: Any, key: int, dtype: Any, shape: Sequence[int]) -> Any:
    """Returns the sum of the gradients that were pushed last, times the factor, when it is there.

    Args:
        handle: the variable's resource handle.
        key: what `register_variable` was given.
        dtype: of the gradients.
        shape: of the variable.
    """
    return load().trepak_deliver_gradient(handle, key=key, T=dtype, shape=list(shape))

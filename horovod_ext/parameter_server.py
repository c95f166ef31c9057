"""The job's parameter servers: co-hosted with the ranks, they sum what all of them push."""

from __future__ import annotations

import secrets
import socket
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import tensorflow as tf

from trepak.horovod_ext import basics, config, exchange
from trepak.horovod_ext.variables import tf_variable
from trepak.ops import parameter_server as native

_SECRET_BYTES = 32


@dataclass(frozen=True)
class ServerOptions:
    """How the servers work; the same on all ranks.

    Attributes:
        servers: ranks that run one; None is all of them.
        split: split every variable evenly over the servers; otherwise whole ones go round robin.
        slice_elements: pieces of a variable with more elements are cut; 0 cuts nothing.
        fixed_order: sum in the order of ranks, so that the same gradients give the same bits.
        dscp: what marks the packets of each priority, 0 to 63, the highest first.
    """

    servers: Sequence[int] | None = None
    split: bool = True
    slice_elements: int = 1024 * 1024
    fixed_order: bool = False
    dscp: Sequence[int] = (46, 0)

    def __post_init__(self) -> None:
        """Raises ValueError for options that are wrong."""
        if self.servers is not None and not self.servers:
            raise ValueError("servers must name at least one rank; None is all of them.")
        if self.slice_elements < 0:
            raise ValueError(f"slice_elements must not be negative, got {self.slice_elements}.")
        if not 1 <= len(self.dscp) <= 8 or not all(0 <= mark <= 63 for mark in self.dscp):
            raise ValueError(f"dscp must be 1 to 8 numbers from 0 to 63, got {self.dscp}.")


def reachable_address() -> str:
    """Returns an address of this machine that the other ranks can reach.

    It is the one of TREPAK_ADDRESS, else the loopback if all ranks run on this machine, else the
    one by which this machine reaches the others. A collective call.

    Raises:
        OSError: another rank's host name can't be resolved.
    """
    chosen = config.value("TREPAK_ADDRESS")
    mine = socket.gethostname()
    hosts = exchange.gather(mine, "host names")
    if chosen:
        return chosen
    others = sorted({host for host in hosts if host != mine})
    if not others:
        return "127.0.0.1"
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.connect((others[0], 9))  # sends nothing, but picks the way
        address: str = probe.getsockname()[0]
        return address


def start(options: ServerOptions) -> None:
    """Starts this rank's share of the servers, and connects it with all others'.

    A collective call.

    Args:
        options: the same on all ranks.

    Raises:
        ValueError: the servers are no ranks of this job.
        HorovodInternalError: a rank did not answer in time, or has left.
    """
    rank, size = basics.rank(), basics.size()
    servers = list(range(size)) if options.servers is None else list(options.servers)
    wrong = [server for server in servers if not 0 <= server < size]
    if wrong:
        raise ValueError(f"there is no rank {wrong[0]}: this job has {size} ranks, from 0 on.")
    host = reachable_address()
    drawn = exchange.gather(secrets.token_hex(_SECRET_BYTES) if rank == 0 else "", "the secret")
    addresses = native.start_engine(
        native.EngineOptions(
            rank=rank,
            size=size,
            host=host,
            secret=bytes.fromhex(drawn[0]),
            servers=servers,
            split=options.split,
            slice_elements=options.slice_elements,
            fixed_order=options.fixed_order,
            dscp=options.dscp,
            deadline_seconds=float(config.value("TREPAK_DEADLINE_SECONDS")),
        )
    )
    theirs = exchange.gather(list(addresses), "the servers' addresses")
    native.connect_engine([server for server, _ in theirs], [client for _, client in theirs])


def stop() -> None:
    """Ends this rank's share; what waits for it fails. A collective call: nobody leaves early."""
    exchange.gather(None, "the end of the servers")
    native.stop_engine()


def register(key: int, variable: Any) -> None:
    """Makes a variable known to the servers.

    Args:
        key: its number, the same on all ranks.
        variable: a Keras or TensorFlow variable of float32 or float64.
    """
    value = tf_variable(variable)
    name = getattr(variable, "path", None) or value.name
    native.register_variable(key, name, value.dtype, value.shape.num_elements())


def push(key: int, variable: Any, gradient: Any, factor: float) -> None:
    """Pushes this rank's gradient of a variable, without waiting.

    Args:
        key: what `register` was given.
        variable: the same.
        gradient: a tensor like the variable.
        factor: what the sum over all ranks is multiplied with.
    """
    value = tf_variable(variable)
    name = getattr(variable, "path", None) or value.name
    native.push_gradient(value.handle, gradient, key, name, factor)


def deliver(key: int, variable: Any) -> tf.Tensor:
    """Returns the sum of the gradients that all ranks pushed last, times the factor.

    Args:
        key: what `register` was given.
        variable: the same.

    Raises:
        HorovodInternalError: a rank has left, or did not push in time; when the op runs.
    """
    value = tf_variable(variable)
    return native.deliver_gradient(value.handle, key, value.dtype, value.shape)

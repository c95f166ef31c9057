"""The job's parameter servers: co-hosted with the ranks, they sum what all of them push."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from trepak.horovod_ext import basics, exchange, sessions

# Of the servers' variables that are not a gradient's, and how many an optimizer, or an order of
# samples, may have of them.
_FIRST_KEY = 1 << 31
_KEYS_OF_SESSION = 1 << 12

_running: ServerOptions | None = None
_SESSION = (1 << 31) - 1  # their only one, out of the way of those that are drawn


@dataclass(frozen=True)
class ServerOptions:
    """How the servers work; the same on all ranks.

    Attributes:
        servers: ranks that run one; None is all of them.
        split: split every variable evenly over the servers; otherwise whole ones go round robin.
        slice_elements: pieces of a variable with more elements are cut; 0 cuts nothing.
        fixed_order: sum in the order of ranks, so that the same gradients give the same bits.
        dscp: what marks the packets of each priority, 0 to 63, the highest first.
        pull_seed: ask for the sums when a step has pushed all its gradients, in an order drawn with
            this seed, as TensorFlow's own servers are asked; None asks with each push.
        by_layer: what earlier layers need overtakes the rest in every rank's own queues.
    """

    servers: Sequence[int] | None = None
    split: bool = True
    slice_elements: int = 1024 * 1024
    fixed_order: bool = False
    dscp: Sequence[int] = (46, 0)
    pull_seed: int | None = None
    by_layer: bool = False

    def __post_init__(self) -> None:
        """Raises ValueError for options that are wrong."""
        if self.servers is not None and not self.servers:
            raise ValueError("servers must name at least one rank; None is all of them.")
        if self.slice_elements < 0:
            raise ValueError(f"slice_elements must not be negative, got {self.slice_elements}.")
        if not 1 <= len(self.dscp) <= 8 or not all(0 <= mark <= 63 for mark in self.dscp):
            raise ValueError(f"dscp must be 1 to 8 numbers from 0 to 63, got {self.dscp}.")


def start(options: ServerOptions) -> None:
    """Starts this rank's share of the servers, and connects it with all others'.

    A collective call; it does nothing if they run already.

    Args:
        options: the same on all ranks.

    Raises:
        ValueError: the servers are no ranks of this job, or others than those that run.
        HorovodInternalError: a rank did not answer in time, or has left.
    """
    global _running
    if _running is not None:
        if _running != options:
            raise ValueError(
                f"this job's parameter servers run with {_running}: all that uses them must have "
                f"the same options, not {options}."
            )
        return
    size = basics.size()
    servers = list(range(size)) if options.servers is None else list(options.servers)
    wrong = [server for server in servers if not 0 <= server < size]
    if wrong:
        raise ValueError(f"there is no rank {wrong[0]}: this job has {size} ranks, from 0 on.")
    given = dataclasses.asdict(options) | {"servers": servers}
    sessions.open_session("parameter_servers", given, options.dscp, _SESSION)
    _running = options
    basics.before_shutdown(_forget)


def stop() -> None:
    """Ends this rank's share; what waits for it fails. A collective call: nobody leaves early."""
    exchange.gather(None, "the end of the servers")
    sessions.close_session(_SESSION)
    _forget()


def _forget() -> None:
    global _running
    _running = None


def statistics() -> dict[str, Any]:
    """Returns what the servers have counted on this rank, since they started.

    Returns:
        bytes_by_priority: payload bytes sent to other ranks, the highest priority first;
        lookup_seconds: what choosing priorities has taken, in all of this process's time;
        served_bytes, serving_seconds: what came to this rank's server, and its CPU time.
    """
    return sessions.statistics("parameter_servers", _SESSION)


def key_of(session: int) -> int:
    """Returns the first key of what an optimizer, or an order of samples, has on the servers.

    Args:
        session: its number, which `sessions.draw_number` has drawn.
    """
    return _FIRST_KEY + _KEYS_OF_SESSION * session

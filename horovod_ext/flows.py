"""What ranks must know of each other before flows connect them: addresses, and a secret."""

from __future__ import annotations

import atexit
import secrets
import socket

from trepak.horovod_ext import basics, config, exchange
from trepak.ops.job import Job
from trepak.ops.streams import stop_stream

PATIENCE_SECONDS = 2.0  # that others get to end their flows when a rank ends its own
_SECRET_BYTES = 32

_streams: dict[int, str] = {}  # that run, and of which system
_next_stream = 0  # none is drawn twice: an optimizer of a job before must not meet another's flows


def this_job() -> Job:
    """Returns what an engine of this process needs to know of the job; a collective call.

    Raises:
        OSError: another rank's host name can't be resolved.
        ValueError: TREPAK_ENCRYPT is not the same on all ranks.
    """
    return Job(
        rank=basics.rank(),
        size=basics.size(),
        host=_reachable_address(),
        secret=_draw_secret(),
        deadline_seconds=float(config.value("TREPAK_DEADLINE_SECONDS")),
        encrypt=_wants_encryption(),
    )


def _wants_encryption() -> bool:
    """Tells whether flows are to be encrypted; a collective call.

    Raises:
        ValueError: some ranks want it and others don't; raised on all of them.
    """
    wanted = exchange.gather(config.value("TREPAK_ENCRYPT") == "1", "TREPAK_ENCRYPT")
    if len(set(wanted)) > 1:
        encrypting = [rank for rank, wants in enumerate(wanted) if wants]
        others = [rank for rank, wants in enumerate(wanted) if not wants]
        raise ValueError(
            f"TREPAK_ENCRYPT is 1 on ranks {encrypting} and 0 on ranks {others}, which can't open "
            "flows to each other: set it alike on all ranks."
        )
    return bool(wanted[0])


def _draw_secret() -> bytes:
    """Returns bytes that rank 0 has drawn and this job alone knows; a collective call."""
    mine = secrets.token_hex(_SECRET_BYTES) if basics.rank() == 0 else ""
    return bytes.fromhex(exchange.gather(mine, "the secret")[0])


def _reachable_address() -> str:
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


def draw_number() -> int:
    """Returns a number that nothing in this job has had; a collective call."""
    global _next_stream
    number: int = max(exchange.gather(_next_stream, "the next number"))
    _next_stream = number + 1
    return number


def begin_stream(system: str) -> int:
    """Returns a number for what one optimizer has of native threads; a collective call.

    Args:
        system: whose, see `trepak.ops.streams`. They end when Horovod is shut down.
    """
    stream = draw_number()
    _streams[stream] = system
    basics.before_shutdown(_end_streams)
    atexit.register(_end_streams)
    return stream


def end_stream(stream: int) -> None:
    """Ends one before Horovod is shut down; call it on all ranks, when none needs it any more."""
    system = _streams.pop(stream, None)
    if system is not None:
        stop_stream(system, stream, PATIENCE_SECONDS)


def _end_streams() -> None:
    while _streams:
        end_stream(next(reversed(_streams)))

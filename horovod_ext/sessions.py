"""Sessions: what one system has of native threads and flows, opened on all ranks together.

Ranks tell each other where they listen, and a secret that only this job knows. Sessions end, the
latest first, before Horovod is shut down.
"""

from __future__ import annotations

import atexit
import functools
import secrets
import socket
import threading
import weakref
from collections.abc import Mapping, Sequence
from typing import Any

import tensorflow as tf

from trepak.horovod_ext import basics, config, exchange
from trepak.ops.loader import call

_PATIENCE_MILLISECONDS = 2000  # that others get to end their flows when a rank ends its own
_SECRET_BYTES = 32
_URGENT = 46  # DSCP of small messages that everybody waits for

_open: dict[int, str] = {}  # by number, of which system
_ending: weakref.WeakSet[threading.Thread] = weakref.WeakSet()  # that close what nobody has
_next_number = 0  # none is drawn twice: an optimizer of a job before must not meet another's flows


def open_session(
    system: str,
    options: Mapping[str, Any],
    dscp: Sequence[int] = (_URGENT,),
    session: int | None = None,
) -> int:
    """Opens a session of a system on all ranks; a collective call.

    Args:
        system: what is registered natively, such as "rna" or "parameter_servers".
        options: what JSON can hold; the same on all ranks but for what is this rank's.
        dscp: what marks the packets of each priority, 0 to 63, the highest first.
        session: the number of one that was closed, to be opened again; a new one by default.

    Returns:
        Its number.

    Raises:
        OSError: another rank's host name can't be resolved.
        ValueError: TREPAK_ENCRYPT is not the same on all ranks.
        HorovodInternalError: a rank did not answer in time, or has left.
        tf.errors.InvalidArgumentError: an option is missing or wrong.
        tf.errors.UnknownError: an address can't be listened at, or a rank is not of this job.
    """
    number = draw_number() if session is None else session
    job = place_in_job() | {"dscp": list(dscp)}
    secret = _draw_secret()
    _close_with_horovod()
    _open[number] = system
    mine = call(
        "open_session",
        system=system,
        session=number,
        options={**options, "job": job},
        secret=list(secret),
    )
    addresses = exchange.gather(mine, f"addresses of {system}")  # by rank, those of its parts
    call("connect_session", system=system, session=number, addresses=addresses)
    exchange.gather(None, f"that all flows of {system} are open")
    return number


def is_open(session: int) -> bool:
    """Tells whether a session was opened and not closed since."""
    return session in _open


def close_session(session: int) -> None:
    """Closes one before Horovod is shut down; call it on all ranks, when none needs it any more."""
    system = _open.pop(session, None)
    if system is not None:
        call(
            "close_session",
            system=system,
            session=session,
            patience_milliseconds=_PATIENCE_MILLISECONDS,
        )


def close_with(owner: Any, session: int) -> None:
    """Has a session end on this rank when an object is not there any more; not a collective call.

    The others are told that this rank is done, and see an error only if they still wait for it.
    """
    weakref.finalize(owner, _close_beside, session).atexit = False  # it ends then in any case


def _close_beside(session: int) -> None:
    """Closes a session without having anybody wait: the garbage collector calls this anywhere."""
    if session in _open:
        thread = threading.Thread(target=close_session, args=[session], name="trepak session")
        thread.start()
        _ending.add(thread)


def statistics(system: str, session: int) -> dict[str, Any]:
    """Returns what a session has counted on this rank: the system's own names, with units."""
    counted: dict[str, Any] = call("session_statistics", system=system, session=session)
    return counted


def _close_with_horovod() -> None:
    if not _open:  # else what was to end before them would end after them
        basics.before_shutdown(_close_all)
    _close_at_exit()


@functools.cache
def _close_at_exit() -> None:
    atexit.register(_close_all)


def _close_all() -> None:
    for session in reversed(list(_open)):
        close_session(session)
    for thread in list(_ending):
        thread.join()


def described(dtype: Any, shapes: Sequence[Any]) -> dict[str, Any]:
    """Returns what a session's options say of the tensors that it exchanges.

    Args:
        dtype: float32 or float64.
        shapes: of each.
    """
    return {"dtype": tf.as_dtype(dtype).name, "shapes": [list(shape) for shape in shapes]}


def draw_number() -> int:
    """Returns a number that nothing in this job has had; a collective call."""
    global _next_number
    number: int = max(exchange.gather(_next_number, "the next number"))
    _next_number = number + 1
    return number


def place_in_job() -> dict[str, Any]:
    """Returns what native code needs to know of this rank and the job; a collective call."""
    return {
        "rank": basics.rank(),
        "size": basics.size(),
        "host": _reachable_address(),
        "deadline_milliseconds": round(1000 * float(config.value("TREPAK_DEADLINE_SECONDS"))),
        "encrypt": _wants_encryption(),
    }


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

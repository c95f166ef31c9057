"""Sessions of native code: what one system has of threads and flows, known by system and number."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from trepak.ops.loader import call, load

__all__ = ["act", "close_session", "connect_session", "open_session", "session_statistics"]


def open_session(system: str, session: int, options: Mapping[str, Any], secret: bytes) -> list[str]:
    """Opens this rank's share; it listens for other ranks' flows.

    Args:
        system: "rna", "elastic_bsp", "adpsgd" or "parameter_servers".
        session: its number, the same on all ranks.
        options: what JSON can hold: the system's own, and `job`, this process's place in it.
        secret: 32 bytes that only this job knows.

    Returns:
        By the system's parts, such as worker and coordinator, where others reach this rank's; empty
        where it has none.

    Raises:
        tf.errors.InvalidArgumentError: an option is missing or wrong.
        tf.errors.UnknownError: the address can't be listened at, or the session is open.
    """
    made: list[str] = call(
        "open_session", system=system, session=session, options=options, secret=list(secret)
    )
    return made


def connect_session(system: str, session: int, addresses: Sequence[Sequence[str]]) -> None:
    """Opens this rank's flows.

    Args:
        system: see `open_session`.
        session: see `open_session`.
        addresses: by rank, what `open_session` returned there.

    Raises:
        tf.errors.UnknownError: a rank did not answer in time, or is not of this job.
    """
    call("connect_session", system=system, session=session, addresses=addresses)


def close_session(system: str, session: int, patience_seconds: float = 0.0) -> None:
    """Ends threads and flows; what waits for them fails. One that is not open stays so.

    Args:
        system: see `open_session`.
        session: see `open_session`.
        patience_seconds: how long other ranks may take to end theirs, before their flows are cut.
    """
    milliseconds = round(1000 * patience_seconds)
    call("close_session", system=system, session=session, patience_milliseconds=milliseconds)


def session_statistics(system: str, session: int) -> dict[str, Any]:
    """Returns what a session has counted on this rank: the system's own names, with units."""
    found: dict[str, Any] = call("session_statistics", system=system, session=session)
    return found


def act(
    system: str,
    session: int,
    action: str,
    values: Sequence[Any] = (),
    dtype: Any = "float32",
    shapes: Sequence[Any] = (),
) -> Any:
    """Does what a step does with a session: one of the actions with which its system is registered.

    Args:
        system: see `open_session`.
        session: see `open_session`.
        action: its name, such as "assign".
        values: tensors of the dtype and shapes that the session was opened with, or none.
        dtype: of what it returns.
        shapes: of what it returns.

    Returns:
        A list of tensors, where there are shapes; otherwise the op, which ends when it is done.

    Raises:
        HorovodInternalError: the system has failed; when the op runs.
    """
    made = load().trepak_act(
        list(values),
        num_made=len(shapes),
        T=dtype,
        shapes=list(shapes),
        system=system,
        session=session,
        action=action,
    )
    return list(made) if shapes else made

"""AD-PSGD's native half: this rank's parameters, averaged with other ranks' meanwhile."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from trepak.ops.loader import load

__all__ = [
    "add_change",
    "assign_parameters",
    "bring_change",
    "load_parameters",
    "settle",
    "show_parameters",
]


def assign_parameters(session: int, values: Sequence[Any]) -> Any:
    """Sets this rank's parameters: tensors of the dtype and shapes that it was started with.

    Raises:
        HorovodInternalError: AD-PSGD has failed.
    """
    return load().trepak_adpsgd_assign(list(values), session=session)


def show_parameters(session: int, values: Sequence[Any]) -> Any:
    """Says that training goes on from other values than this rank's parameters.

    Raises:
        HorovodInternalError: AD-PSGD has failed.
    """
    return load().trepak_adpsgd_show(list(values), session=session)


def add_change(session: int, values: Sequence[Any]) -> Any:
    """Adds a step's change to this rank's parameters, and begins to average them.

    Args:
        session: its number.
        values: what training has made of the values that it went on from: those that were loaded,
            assigned or shown last.

    Raises:
        HorovodInternalError: AD-PSGD has failed.
    """
    return load().trepak_adpsgd_add(list(values), session=session)


def bring_change(session: int, values: Sequence[Any]) -> Any:
    """Adds a change that is not a step's to this rank's parameters, and begins no averaging.

    Args:
        session: its number.
        values: what was made of those that were loaded, assigned or shown last.

    Raises:
        HorovodInternalError: AD-PSGD has failed.
    """
    return load().trepak_adpsgd_bring(list(values), session=session)


def load_parameters(session: int, dtype: Any, shapes: Sequence[Any]) -> list[Any]:
    """Returns this rank's parameters, to go on from; counts the samples all ranks have taken.

    Args:
        session: its number.
        dtype: what the session was opened with.
        shapes: what the session was opened with.

    Raises:
        HorovodInternalError: AD-PSGD has failed.
    """
    made = load().trepak_adpsgd_load(
        num_values=len(shapes), T=dtype, shapes=list(shapes), session=session
    )
    return list(made)


def settle(session: int) -> Any:
    """Waits until no averaging that this rank began is on its way.

    Raises:
        HorovodInternalError: AD-PSGD has failed.
    """
    return load().trepak_adpsgd_settle(session=session)

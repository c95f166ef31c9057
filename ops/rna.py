"""RNA's native half: gradients of a step go out, finished rounds come in."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from trepak.ops.loader import load

__all__ = [
    "RnaRound",
    "finished_rounds",
    "read_round",
    "remaining_rounds",
    "write_gradients",
]


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


def write_gradients(session: int, gradients: Sequence[Any], rate: Any) -> Any:
    """Hands the gradients of what this rank was dealt over, without waiting.

    Args:
        session: its number.
        gradients: tensors of the dtype and shapes that the session was opened with. If one of them
            is not finite, the step contributes nothing.
        rate: the learning rate with which they are to be applied; float32, [].

    Raises:
        HorovodInternalError: RNA has failed.
    """
    return load().trepak_rna_write(list(gradients), rate, session=session)


def finished_rounds(session: int) -> Any:
    """Returns how many rounds have finished and were not read; int32, []."""
    return load().trepak_rna_finished(session=session)


def read_round(session: int, dtype: Any, shapes: Sequence[Any]) -> RnaRound:
    """Returns the oldest round that has finished and was not read, and counts its samples.

    Args:
        session: its number.
        dtype: what the session was opened with.
        shapes: what the session was opened with.

    Raises:
        HorovodInternalError: RNA has failed, or there is none.
    """
    made = load().trepak_rna_read(
        num_gradients=len(shapes), T=dtype, shapes=list(shapes), session=session
    )
    return RnaRound(list(made.gradients), made.share, made.rate, made.is_exchange, made.exchanges)


def remaining_rounds(session: int) -> Any:
    """Returns how many rounds are to be read after a drain, finished or not; int32, []."""
    return load().trepak_rna_remaining(session=session)

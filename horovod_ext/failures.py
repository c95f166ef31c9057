"""Turns TensorFlow's report of a failed collective into Horovod's own exception.

Horovod fails a collective with a generic TensorFlow status; elastic mode, and people, act on
`HorovodInternalError`.
"""

from __future__ import annotations

import contextlib
import functools
import re
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

import tensorflow as tf
from horovod.common.exceptions import HorovodInternalError

_F = TypeVar("_F", bound=Callable[..., Any])

# What Horovod's core writes when a peer is gone or it was shut down.
_COLLECTIVE = re.compile(
    r"Horovod|MPI_\w+ failed|gloo|Connection (closed|reset) by peer|Read error|Timed out waiting"
    r"|Application timeout|Socket",
    re.IGNORECASE,
)


def is_collective_failure(error: BaseException) -> bool:
    """Tells whether a TensorFlow error means that a collective operation failed."""
    kinds = (tf.errors.UnknownError, tf.errors.AbortedError, tf.errors.UnavailableError)
    return isinstance(error, kinds) and bool(_COLLECTIVE.search(str(error)))


@contextlib.contextmanager
def collective_failures(doing: str) -> Iterator[None]:
    """Raises HorovodInternalError for a collective that fails inside the block.

    Args:
        doing: what this rank was doing, for the message.

    Raises:
        HorovodInternalError: a collective failed; the message names this rank and the remedy.
    """
    try:
        yield
    except tf.errors.OpError as error:
        if not is_collective_failure(error):
            raise
        raise HorovodInternalError(_message(doing, error)) from error


def _message(doing: str, error: tf.errors.OpError) -> str:
    from trepak.horovod_ext import basics

    rank = str(basics.rank()) if basics.is_initialized() else "of unknown number"
    cause = str(error.message).strip().splitlines()[0]
    return (
        f"rank {rank}: a collective failed while {doing}: {cause} Another rank has most likely "
        "died or left: look for the first error in the other ranks' output. To survive this, run "
        "under trepak.elastic.run."
    )


def raising_collective_failures(doing: str) -> Callable[[_F], _F]:
    """Decorates a function with `collective_failures`."""

    def decorate(function: _F) -> _F:
        @functools.wraps(function)
        def wrapper(*args: Any, **kwargs: Any) -> Any:
            with collective_failures(doing):
                return function(*args, **kwargs)

        return wrapper  # type: ignore[return-value]

    return decorate

"""Gradients that travel while training goes on: through parameter servers, or in a lane."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from trepak.ops.loader import load

__all__ = [
    "commit_step",
    "deliver_gradient",
    "pending_gradients",
    "push_gradient",
]


def push_gradient(
    handle: Any,
    gradient: Any,
    key: int,
    factor: float = 1.0,
    average: bool = False,
    pull: bool = True,
) -> Any:
    """Pushes a gradient to where it is summed, without waiting.

    Args:
        handle: the variable's resource handle, which orders this among other ops on the variable.
        gradient: a float32 or float64 tensor.
        key: what `add_variable` was given.
        factor: what the sum over all ranks is multiplied with.
        average: divide it by the number of ranks, too.
        pull: ask for the sum at once; otherwise `commit_step` must.
    """
    return load().trepak_push_gradient(
        handle, gradient, key=key, factor=factor, average=average, pull=pull
    )


def deliver_gradient(handle: Any, key: int, dtype: Any, shape: Sequence[int]) -> Any:
    """Returns the sum of the gradients that were pushed last, times the factor, when it is there.

    Args:
        handle: the variable's resource handle.
        key: what `add_variable` was given.
        dtype: of the gradients.
        shape: of the variable.
    """
    return load().trepak_deliver_gradient(handle, key=key, T=dtype, shape=list(shape))


def commit_step(
    handles: Sequence[Any],
    keys: Sequence[int],
    pull_seed: int | None = None,
) -> Any:
    """Says that a training step has pushed the gradients of all these variables.

    Args:
        handles: the variables' resource handles.
        keys: what `add_variable` was given.
        pull_seed: ask for the sums now, in an order drawn anew in each step with this seed.
    """
    pull = pull_seed is not None
    return load().trepak_commit_step(handles, keys=list(keys), pull=pull, seed=pull_seed or 0)


def pending_gradients(handles: Sequence[Any], keys: Sequence[int]) -> Any:
    """Returns which variables' gradients were pushed and not delivered yet: bool, [variables].

    Args:
        handles: the variables' resource handles.
        keys: what `add_variable` was given.

    Raises:
        HorovodInternalError: some were pushed by a step that did not come to its end.
    """
    return load().trepak_pending_gradients(handles, keys=list(keys))

"""Begins an epoch of a running `fit` where an earlier one was interrupted."""

from __future__ import annotations

import inspect
import itertools
from collections.abc import Iterator
from typing import Any

from keras.src.trainers.epoch_iterator import EpochIterator


def resume(epoch: int, batches: int, over: bool) -> None:
    """Has the epoch that begins leave out its first batches; call it in `on_epoch_begin`.

    Keras takes the left out batches from the data and gives them to nobody: the model doesn't train
    on them, callbacks don't hear of them, and the first batch that is trained keeps its number.
    Where `fit` goes on in the data over several epochs (`steps_per_epoch` is less than the data
    hold), the earlier epochs' batches are left out too.

    Args:
        epoch: epochs that were done before, since the data began.
        batches: batches of this epoch that were done before.
        over: whether this epoch has no batch left, here or on another rank.

    Raises:
        RuntimeError: there are batches to leave out, and no `fit` is running.
    """
    data = _data_of_running_fit()
    if data is None:
        if batches:
            raise RuntimeError(
                f"no fit is running that could leave out the {batches} batches that were done: "
                "UpdateBatchStateCallback works in model.fit only. In a loop of your own skip the "
                "first state.batch batches of the data, and leave out the callback."
            )
        return
    _pass_over_epochs(data, epoch)
    if batches:
        # For this epoch only: Keras calls it when the epoch begins.
        data._enumerate_iterator = lambda: _rest_of_epoch(data, batches, over)


def _data_of_running_fit() -> EpochIterator | None:
    """Returns what deals the batches of the innermost `fit`: Keras keeps it in a local variable."""
    frame = inspect.currentframe()
    while frame is not None:
        for value in frame.f_locals.values():
            if isinstance(value, EpochIterator):
                return value
        frame = frame.f_back
    return None


def _pass_over_epochs(data: EpochIterator, epoch: int) -> None:
    steps, held = data.steps_per_epoch, data.data_adapter.num_batches
    if not steps or not held or steps >= held:
        return  # each epoch begins the data anew, or nobody knows how much there is
    calls = -(-steps // data.steps_per_execution)
    taken = calls * data.steps_per_execution  # per epoch
    ahead = epoch % -(-held // taken) * taken
    if ahead:
        data._current_iterator = iter(data._get_iterator())
        data._steps_seen = len(_take(data._current_iterator, ahead))


def _rest_of_epoch(data: EpochIterator, done: int, over: bool) -> Iterator[tuple[int, int, Any]]:
    """Deals an epoch without its first batches: numbers of the first and last one, and the data."""
    del data._enumerate_iterator
    for begin, end, batches in data._enumerate_iterator():
        old = min(end + 1, done) - begin
        if old > 0 and len(_take(batches, old)) == old:
            rest = list(itertools.islice(batches, end + 1 - done)) if end >= done else []
            if rest and not over:
                yield begin, end, rest
        elif not over:
            yield begin, end, batches


def _take(batches: Iterator[Any], number: int) -> list[None]:
    return [None for _ in itertools.islice(batches, number)]

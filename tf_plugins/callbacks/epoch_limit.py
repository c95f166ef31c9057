"""Ends an epoch of `fit` early without ending the training, or on all ranks together."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

from trepak.horovod_ext import exchange
from trepak.horovod_ext.basics import ProcessSet


class _EndOfEpoch:
    """A true value that tells our request to end the epoch from EarlyStopping's to end training."""

    def __bool__(self) -> bool:
        return True


_END_OF_EPOCH = _EndOfEpoch()

BATCHES_AT_HAND = "batches at hand"  # the exchange before each step of ranks in lockstep


class EpochLimit:
    """Ends an epoch after a number of batches; used by callbacks, not thread-safe.

    `fit` looks at `model.stop_training` after each batch and again after each epoch: set in
    between, it ends the epoch only.
    """

    def __init__(self) -> None:
        """Makes a limit that does not limit."""
        self.batches: int | None = None

    def after_batch(self, model: Any, batch: int) -> None:
        """Call with the index of the batch that has just ended."""
        if self.batches is not None and batch + 1 >= self.batches and not model.stop_training:
            model.stop_training = _END_OF_EPOCH

    def after_epoch(self, model: Any) -> None:
        """Call at the end of an epoch; lets training go on if only the epoch was to end."""
        if model.stop_training is _END_OF_EPOCH:
            model.stop_training = False


def in_lockstep(
    train_function: Callable[[Any], Any],
    steps: int,
    at_end: Callable[[], None],
    process_set: ProcessSet,
) -> Callable[[Any], Any]:
    """Wraps a model's train function so that an epoch ends where the first rank has no more data.

    Args:
        train_function: what Keras calls with an iterator over batches.
        steps: batches that one call takes (steps_per_execution).
        at_end: called on all ranks when the data has ended.
        process_set: the ranks that train together.
    """

    def step(iterator: Any) -> Any:
        batches = list(itertools.islice(iterator, steps))
        fewest = min(exchange.gather(len(batches), BATCHES_AT_HAND, process_set))
        if not fewest:
            at_end()
            raise StopIteration  # as Keras' own function does at the end of the data
        return train_function(batches[:fewest])

    return step

"""Ends an epoch of `fit` early without ending the training."""

from __future__ import annotations

from typing import Any


class _EndOfEpoch:
    """A true value that tells our request to end the epoch from EarlyStopping's to end training."""

    def __bool__(self) -> bool:
        return True


_END_OF_EPOCH = _EndOfEpoch()


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

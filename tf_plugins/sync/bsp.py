"""Bulk synchronous parallel training: every step waits for every rank."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from trepak.tf_plugins.model.tracing import reject_xla
from trepak.tf_plugins.optimizer.distribution import Distribution
from trepak.tf_plugins.optimizer.overlapped_step import OverlappedStep
from trepak.tf_plugins.sync.step import Step
from trepak.tf_plugins.sync.sync_model import SyncModel


@dataclass(frozen=True)
class BSP(SyncModel):
    """Applies the average (or sum) of all ranks' gradients, as one process would the whole batch.

    n ranks with batches of b samples take the same steps as one process with batches of n·b.
    """

    def step_for(self, distribution: Distribution) -> BSPStep:
        """Returns the steps of one optimizer; see `SyncModel.step_for`."""
        return BSPStep(distribution)


class BSPStep(Step):
    """Reduces gradients over all ranks and applies them, or pushes them for the next step."""

    def __init__(self, distribution: Distribution) -> None:
        """Makes it; see `Step`."""
        super().__init__(distribution)
        self._overlap = OverlappedStep(distribution)

    def apply(self, optimizer: Any, grads: Sequence[Any], variables: Sequence[Any]) -> None:
        """Ends a step; see `Step.apply`."""
        if self._overlap.takes(grads, variables):
            self._overlap.push(optimizer, grads, variables)
            return
        if not optimizer._keras_accumulates():
            grads = self.reduce(grads, variables)
        optimizer._apply_plainly(grads, variables)

    def reduce(self, grads: Sequence[Any], variables: Sequence[Any]) -> list[Any]:
        """Returns the gradients reduced over all ranks; see `Step.reduce`."""
        reject_xla()
        return self._distribution.reducer.reduce(grads, variables)

    def begin(self, optimizer: Any) -> None:
        """Applies what the step before has pushed; see `Step.begin`."""
        self._overlap.begin(optimizer)

    def resume(self) -> None:
        """Has the transport run again; see `Step.resume`."""
        self._overlap.resume()

    def drain(self, optimizer: Any) -> None:
        """Applies what is pending; see `Step.drain`."""
        self._overlap.flush(optimizer)

    def end(self) -> None:
        """Warns of what is pending; see `Step.end`."""
        self._overlap.warn_of_pending()

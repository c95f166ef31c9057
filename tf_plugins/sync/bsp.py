"""Bulk synchronous parallel training: every step waits for every rank."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from trepak.horovod_ext.gradient_reducer import GradientReducer
from trepak.tf_plugins.sync.sync_model import SyncModel


@dataclass(frozen=True)
class BSP(SyncModel):
    """Applies the average (or sum) of all ranks' gradients, as one process would the whole batch.

    n ranks with batches of b samples take the same steps as one process with batches of n·b.
    """

    overlaps: ClassVar[bool] = True

    def combine(
        self, reducer: GradientReducer, grads: Sequence[Any], variables: Sequence[Any]
    ) -> list[Any]:
        """Returns the gradients reduced over all ranks; see `SyncModel.combine`."""
        return reducer.reduce(grads, variables)

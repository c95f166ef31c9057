"""When ranks synchronize: the interface that every synchronization model implements."""

from __future__ import annotations

import abc
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from trepak.horovod_ext.gradient_reducer import GradientReducer

if TYPE_CHECKING:
    from trepak.tf_plugins.optimizer.distribution import Distribution
    from trepak.tf_plugins.sync.pace import Pace


class SyncModel(abc.ABC):
    """Decides what becomes of the gradients of one step; passed as `sync=` to an optimizer.

    Attributes:
        overlaps: whether gradients may be applied at the beginning of the next step, where the
            transport lets their transfer overlap it.
    """

    overlaps: ClassVar[bool] = False

    @abc.abstractmethod
    def combine(
        self, reducer: GradientReducer, grads: Sequence[Any], variables: Sequence[Any]
    ) -> list[Any]:
        """Returns the gradients that this rank applies in this step.

        Called once per real step, while the step's tf.function is traced, or eagerly.

        Args:
            reducer: reduces gradients over the ranks.
            grads: this rank's gradients: tensors, IndexedSlices or None.
            variables: the variables that they belong to.
        """

    def pace(self, distribution: Distribution) -> Pace | None:
        """Returns what ends an optimizer's steps, if ranks go at their own pace.

        Args:
            distribution: of the optimizer.
        """
        return None

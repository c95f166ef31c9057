"""When ranks synchronize: the interface that every synchronization model implements."""

from __future__ import annotations

import abc

from trepak.tf_plugins.optimizer.distribution import Distribution
from trepak.tf_plugins.sync.step import Step


class SyncModel(abc.ABC):
    """Decides what becomes of the gradients of one step; passed as `sync=` to an optimizer."""

    @abc.abstractmethod
    def step_for(self, distribution: Distribution) -> Step:
        """Returns what ends the steps of one optimizer.

        Args:
            distribution: of the optimizer.

        Raises:
            ValueError: the optimizer's other options don't go with it.
        """

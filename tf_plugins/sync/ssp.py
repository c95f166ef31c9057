"""SSP: ranks that may get a few steps ahead (Ho et al., NIPS 2013), as a baseline."""

from __future__ import annotations

from dataclasses import dataclass

from trepak.horovod_ext.elastic_bsp import StepOptions
from trepak.tf_plugins.sync.parameter_server_steps import ServedSyncModel


@dataclass(frozen=True)
class SSP(ServedSyncModel):
    """Stale synchronous parallel training: a rank waits when it is too far ahead of the slowest.

    Attributes:
        staleness: steps that a rank may have taken more than the slowest when it begins one, at
            most 10,000.
    """

    staleness: int = StepOptions.staleness

    def _options(self) -> StepOptions:
        return StepOptions("ssp", staleness=self.staleness)

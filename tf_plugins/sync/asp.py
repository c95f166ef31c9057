"""ASP: ranks that never wait for each other, as a baseline."""

from __future__ import annotations

from dataclasses import dataclass

from trepak.horovod_ext.elastic_bsp import StepOptions
from trepak.tf_plugins.sync.parameter_server_steps import ServedSyncModel


@dataclass(frozen=True)
class ASP(ServedSyncModel):
    """Asynchronous parallel training: a step's change goes to the servers, and nobody waits."""

    def _options(self) -> StepOptions:
        return StepOptions("asp")

"""Elastic training: `run`, states and the callbacks that keep them."""

from trepak.tf_plugins.elastic import (
    HorovodInternalError,
    HostsUpdatedInterrupt,
    KerasState,
    TensorFlowKerasState,
    TensorFlowState,
    run,
)
from trepak.tf_plugins.elastic_callbacks import (
    CommitStateCallback,
    UpdateBatchStateCallback,
    UpdateEpochStateCallback,
)

__all__ = [
    "CommitStateCallback",
    "HorovodInternalError",
    "HostsUpdatedInterrupt",
    "KerasState",
    "TensorFlowKerasState",
    "TensorFlowState",
    "UpdateBatchStateCallback",
    "UpdateEpochStateCallback",
    "run",
]

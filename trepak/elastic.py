"""Elastic training: `run`, states and the callbacks that keep them."""

from trepak.tf_plugins.elastic import (
    CommitStateCallback,
    HorovodInternalError,
    HostsUpdatedInterrupt,
    KerasState,
    TensorFlowKerasState,
    TensorFlowState,
    UpdateBatchStateCallback,
    UpdateEpochStateCallback,
    run,
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

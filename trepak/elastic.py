"""Elastic training: `run`, states and the callbacks that keep them."""

from trepak.horovod_ext.membership import leave
from trepak.tf_plugins.callbacks.elastic_callbacks import (
    CommitStateCallback,
    UpdateBatchStateCallback,
    UpdateEpochStateCallback,
)
from trepak.tf_plugins.model.elastic import (
    HorovodInternalError,
    HostsUpdatedInterrupt,
    KerasState,
    TensorFlowKerasState,
    TensorFlowState,
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
    "leave",
    "run",
]

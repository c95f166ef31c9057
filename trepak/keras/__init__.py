"""`import trepak.keras as hvd` stands in for `import horovod.tensorflow.keras as hvd`."""

from trepak.horovod_ext.basics import (
    ProcessSet,
    add_process_set,
    ccl_built,
    cross_rank,
    cross_size,
    cuda_built,
    ddl_built,
    global_process_set,
    gloo_built,
    gloo_enabled,
    init,
    is_initialized,
    local_rank,
    local_size,
    mpi_built,
    mpi_enabled,
    mpi_threads_supported,
    nccl_built,
    rank,
    remove_process_set,
    rocm_built,
    shutdown,
    size,
    start_timeline,
    stop_timeline,
)
from trepak.horovod_ext.broadcasting import (
    broadcast_global_variables,
    broadcast_object,
    broadcast_variables,
)
from trepak.horovod_ext.collectives import Adasum, Average, Compression, Sum, barrier, join
from trepak.keras import callbacks, elastic
from trepak.tf_plugins.callbacks.state_average import average_state
from trepak.tf_plugins.model.keras_values import allgather, allreduce, broadcast, reducescatter
from trepak.tf_plugins.model.model_loading import load_model
from trepak.tf_plugins.model.sync_batch_norm import SyncBatchNormalization
from trepak.tf_plugins.optimizer.distributed_tape import DistributedGradientTape
from trepak.tf_plugins.optimizer.wrappers import DistributedOptimizer, PartialDistributedOptimizer
from trepak.tf_plugins.sync.bsp import BSP

__all__ = [
    "Adasum",
    "BSP",
    "Average",
    "Compression",
    "DistributedGradientTape",
    "DistributedOptimizer",
    "PartialDistributedOptimizer",
    "ProcessSet",
    "Sum",
    "SyncBatchNormalization",
    "add_process_set",
    "allgather",
    "allreduce",
    "average_state",
    "barrier",
    "broadcast",
    "broadcast_global_variables",
    "broadcast_object",
    "broadcast_variables",
    "callbacks",
    "ccl_built",
    "cross_rank",
    "cross_size",
    "cuda_built",
    "ddl_built",
    "elastic",
    "global_process_set",
    "gloo_built",
    "gloo_enabled",
    "init",
    "is_initialized",
    "join",
    "load_model",
    "local_rank",
    "local_size",
    "mpi_built",
    "mpi_enabled",
    "mpi_threads_supported",
    "nccl_built",
    "rank",
    "reducescatter",
    "remove_process_set",
    "rocm_built",
    "shutdown",
    "size",
    "start_timeline",
    "stop_timeline",
]

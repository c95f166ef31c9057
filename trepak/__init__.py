"""trepak: distributed training of Keras 3 and TensorFlow models on Horovod.

`import trepak as hvd` stands in for `import horovod.tensorflow as hvd`. Names are loaded when first
used: importing trepak itself loads nothing, prints nothing and initialises nothing.
"""

from __future__ import annotations

import importlib
from typing import Any

__version__ = "0.1.0"

_EXPORTS = {
    "horovod_ext.basics": (
        "ProcessSet add_process_set ccl_built cross_rank cross_size cuda_built ddl_built "
        "global_process_set gloo_built gloo_enabled init is_homogeneous is_initialized local_rank "
        "local_size mpi_built mpi_enabled mpi_threads_supported nccl_built rank "
        "remove_process_set rocm_built shutdown size start_timeline stop_timeline"
    ),
    "horovod_ext.collectives": (
        "Adasum Average Compression Max Min Product Sum allgather allreduce alltoall barrier "
        "broadcast check_num_rank_power_of_2 gpu_available grouped_allgather grouped_allreduce "
        "grouped_reducescatter handle_average_backwards_compatibility join local_rank_op "
        "local_size_op process_set_included_op rank_op reducescatter size_op"
    ),
    "horovod_ext.alltoall": "alltoall_async",
    "horovod_ext.broadcasting": (
        "allgather_object broadcast_ broadcast_global_variables broadcast_object "
        "broadcast_object_fn broadcast_variables"
    ),
    "tf_plugins.optimizer.tensorflow_wrappers": "DistributedOptimizer",
    "tf_plugins.optimizer.wrappers": "PartialDistributedOptimizer",
    "tf_plugins.optimizer.distributed_tape": (
        "DistributedGradientTape PartialDistributedGradientTape"
    ),
    "tf_plugins.model.model_loading": "load_model",
    "tf_plugins.sync.sync_model": "SyncModel",
    "tf_plugins.sync.step": "Step",
    "tf_plugins.sync.asynchronous_step": "AsynchronousStep",
    "horovod_ext.gradient_transport": "GradientTransport",
    "horovod_ext.old_names": "Transport _executing_eagerly",
    "tf_plugins.transport.parameter_servers": "ParameterServers",
    "tf_plugins.transport.geryon": "Geryon",
    "ops.geryon": "register_server_protocol",
    "tf_plugins.model.overlap": "overlap",
    "tf_plugins.model.pipeline": "pipeline",
    "tf_plugins.fela.fela": "Fela",
    "tf_plugins.memory.dymem": "Dymem",
    "tf_plugins.sync.bsp": "BSP",
    "tf_plugins.sync.local_sgd": "LocalSGD",
    "tf_plugins.sync.rna": "RNA",
    "tf_plugins.sync.eager_sgd": "EagerSGD",
    "tf_plugins.sync.adpsgd": "ADPSGD",
    "tf_plugins.sync.elastic_bsp": "ElasticBSP",
    "tf_plugins.sync.ssp": "SSP",
    "tf_plugins.sync.asp": "ASP",
    "tf_plugins.data.global_epochs": "global_epochs",
    "tf_plugins.data.dynamic_sharding": "dynamic_sharding",
    "tf_plugins.data.read_ahead": "read_ahead",
    "tf_plugins.callbacks.state_average": "average_state",
    "tf_plugins.callbacks.comparison": "compare_ranks",
    "tf_plugins.model.sync_batch_norm": "SyncBatchNormalization",
}
_HOME = {name: module for module, names in _EXPORTS.items() for name in names.split()}
_MODULES = (
    *("callbacks", "chicle", "elastic", "glm", "keras", "layers", "ops"),
    # where Horovod scripts look for names that trepak has
    *("compression", "functions", "mpi_ops", "sync_batch_norm", "util"),
)

__all__ = [*sorted(_HOME), *_MODULES]


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return importlib.import_module(f"trepak.{name}")
    if name not in _HOME:
        raise AttributeError(f"module 'trepak' has no attribute {name!r}")
    value = getattr(importlib.import_module(f"trepak.{_HOME[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})

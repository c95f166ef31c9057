"""The optimizer wrappers that scripts call, with Horovod's names and signatures."""

from __future__ import annotations

import warnings
from typing import Any

from trepak.horovod_ext import basics, collectives
from trepak.horovod_ext.gradient_transport import GradientTransport
from trepak.horovod_ext.reduce_options import ReduceOptions
from trepak.tf_plugins.optimizer.distribute import distribute
from trepak.tf_plugins.optimizer.distributed_tape import local_variables
from trepak.tf_plugins.sync.sync_model import SyncModel


def DistributedOptimizer(  # noqa: N802  (Horovod's name)
    optimizer: Any,
    name: str | None = None,
    device_dense: str = "",
    device_sparse: str = "",
    compression: Any = collectives.Compression.none,
    sparse_as_dense: bool = False,
    gradient_predivide_factor: float = 1.0,
    op: Any = collectives.Average,
    backward_passes_per_step: int = 1,
    average_aggregated_gradients: bool = False,
    num_groups: int = 0,
    groups: Any = None,
    process_set: basics.ProcessSet = basics.global_process_set,
    scale_local_gradients: bool = True,
    sync: SyncModel | None = None,
    transport: GradientTransport | None = None,
) -> Any:
    """Makes a Keras 3 optimizer apply gradients reduced over all ranks.

    Args:
        optimizer: any keras.optimizers.Optimizer, also a LossScaleOptimizer; it is changed in place
            and returned, with its state and settings.
        name: begins the names of the collectives; by default "Distributed" and the class' name.
        device_dense: see `ReduceOptions`.
        device_sparse: see `ReduceOptions`.
        compression: see `ReduceOptions`.
        sparse_as_dense: see `ReduceOptions`.
        gradient_predivide_factor: see `ReduceOptions`.
        op: see `ReduceOptions`.
        backward_passes_per_step: passes whose gradients are summed on each rank before they are
            reduced and applied once.
        average_aggregated_gradients: divide those sums by `backward_passes_per_step`.
        num_groups: the older name of an integer `groups`.
        groups: see `ReduceOptions`.
        process_set: see `ReduceOptions`.
        scale_local_gradients: see `ReduceOptions`.
        sync: when ranks synchronize; `BSP()` by default.
        transport: how gradients travel, e.g. `Geryon()`; Horovod's collectives by default.

    Raises:
        TypeError: not a Keras 3 optimizer, no sync model, or no transport.
        ValueError: options that are wrong or exclude each other.
    """
    if num_groups:
        warnings.warn("num_groups is the older name of groups.", DeprecationWarning, stacklevel=2)
    options = ReduceOptions(
        op=op,
        compression=compression,
        sparse_as_dense=sparse_as_dense,
        gradient_predivide_factor=gradient_predivide_factor,
        groups=groups or num_groups or None,
        process_set=process_set,
        scale_local_gradients=scale_local_gradients,
        device_dense=device_dense,
        device_sparse=device_sparse,
        transport=transport,
    )
    return distribute(
        optimizer, name, options, backward_passes_per_step, average_aggregated_gradients, sync
    )


def PartialDistributedOptimizer(  # noqa: N802  (Horovod's name)
    optimizer: Any, *args: Any, local_layers: Any = None, **kwargs: Any
) -> Any:
    """Makes a DistributedOptimizer that leaves the gradients of some layers local to each rank.

    Args:
        optimizer: see `DistributedOptimizer`.
        args: see `DistributedOptimizer`.
        local_layers: a built Keras layer or a list of them.
        kwargs: see `DistributedOptimizer`.

    Raises:
        ValueError: `local_layers` holds something else.
    """
    distributed = DistributedOptimizer(optimizer, *args, **kwargs)
    for variable in local_variables(local_layers):
        distributed.register_local_var(variable)
    return distributed

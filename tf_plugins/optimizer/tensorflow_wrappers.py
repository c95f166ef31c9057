"""`trepak.DistributedOptimizer`, with the signature of the one in horovod.tensorflow."""

from __future__ import annotations

from typing import Any

import horovod.tensorflow as _hvd
import tensorflow as tf

from trepak.horovod_ext import basics, collectives
from trepak.horovod_ext.gradient_transport import GradientTransport
from trepak.tf_plugins.optimizer import wrappers
from trepak.tf_plugins.sync.sync_model import SyncModel


def DistributedOptimizer(  # noqa: N802  (Horovod's name)
    optimizer: Any,
    name: str | None = None,
    use_locking: bool = False,
    device_dense: str = "",
    device_sparse: str = "",
    compression: Any = collectives.Compression.none,
    sparse_as_dense: bool = False,
    backward_passes_per_step: int = 1,
    op: Any = collectives.Average,
    gradient_predivide_factor: float = 1.0,
    average_aggregated_gradients: bool = False,
    num_groups: int = 0,
    groups: Any = None,
    process_set: basics.ProcessSet = basics.global_process_set,
    scale_local_gradients: bool = True,
    sync: SyncModel | None = None,
    transport: GradientTransport | None = None,
) -> Any:
    """Makes an optimizer apply gradients reduced over all ranks.

    Args:
        optimizer: a Keras 3 optimizer, see `trepak.keras.DistributedOptimizer`; or one of
            `tf.compat.v1.train`, which Horovod itself wraps.
        name: see `trepak.keras.DistributedOptimizer`, as all that follow.
        use_locking: for optimizers of `tf.compat.v1.train` only.
        device_dense: see there.
        device_sparse: see there.
        compression: see there.
        sparse_as_dense: see there.
        backward_passes_per_step: see there.
        op: see there.
        gradient_predivide_factor: see there.
        average_aggregated_gradients: see there.
        num_groups: see there.
        groups: see there.
        process_set: see there.
        scale_local_gradients: see there.
        sync: see there; Keras 3 optimizers only.
        transport: see there; Keras 3 optimizers only.

    Raises:
        TypeError: neither kind of optimizer, no sync model, or no transport.
        ValueError: options that are wrong or exclude each other.
    """
    options = dict(
        name=name,
        device_dense=device_dense,
        device_sparse=device_sparse,
        compression=compression,
        sparse_as_dense=sparse_as_dense,
        backward_passes_per_step=backward_passes_per_step,
        op=op,
        gradient_predivide_factor=gradient_predivide_factor,
        average_aggregated_gradients=average_aggregated_gradients,
        num_groups=num_groups,
        groups=groups,
        process_set=process_set,
        scale_local_gradients=scale_local_gradients,
    )
    if isinstance(optimizer, tf.compat.v1.train.Optimizer):
        if sync is not None or transport is not None:
            raise ValueError(
                "sync= and transport= work with Keras 3 optimizers, not with tf.compat.v1.train's."
            )
        return _hvd.DistributedOptimizer(optimizer, use_locking=use_locking, **options)
    return wrappers.DistributedOptimizer(optimizer, sync=sync, transport=transport, **options)

"""Makes an optimizer distributed, in place."""

from __future__ import annotations

from typing import Any

import keras

from trepak.horovod_ext.reduce_options import ReduceOptions
from trepak.tf_plugins.model import keras_hooks
from trepak.tf_plugins.model.distributed_models import is_distributed
from trepak.tf_plugins.optimizer import loss_scale
from trepak.tf_plugins.optimizer.distributed_optimizer import DistributedMixin, distributed_class
from trepak.tf_plugins.optimizer.distribution import Distribution
from trepak.tf_plugins.optimizer.optimizer_facts import distribution_facts
from trepak.tf_plugins.sync.bsp import BSP
from trepak.tf_plugins.sync.sync_model import SyncModel


def distribute(
    optimizer: Any,
    name: str | None,
    options: ReduceOptions,
    backward_passes_per_step: int,
    average_aggregated_gradients: bool,
    sync: SyncModel | None,
) -> Any:
    """Makes an optimizer distributed, in place: its state, schedule and settings stay.

    Returns:
        The same object, whose class is now a distributed subclass of its own.

    Raises:
        TypeError: not a Keras 3 optimizer, or `sync` is not a sync model.
        ValueError: already distributed with other options, or options that exclude each other.
    """
    _check(optimizer, backward_passes_per_step, sync)
    mean = average_aggregated_gradients
    name = name or f"Distributed{type(optimizer).__name__}"
    made_with = (sync or BSP(), options, name, backward_passes_per_step, mean)
    if is_distributed(optimizer):
        _check_that_options_are_the_same(optimizer, made_with)
        return optimizer
    distribution = Distribution(*made_with)
    loss_scale.watch()
    keras_hooks.install()
    if isinstance(optimizer, keras.optimizers.LossScaleOptimizer):
        return loss_scale.distribute(optimizer, distribution)
    optimizer.__class__ = distributed_class(type(optimizer), distribution, DistributedMixin)
    return optimizer


def _check_that_options_are_the_same(optimizer: Any, made_with: tuple[Any, ...]) -> None:
    before, now = distribution_facts(*optimizer._trepak.made_with), distribution_facts(*made_with)
    different = [name for name in now if before[name] != now[name]]
    if different:
        name = different[0]
        raise ValueError(
            f"optimizer {optimizer.name!r} is distributed already, with {name.rstrip('=')}="
            f"{before[name]}, not {now[name]} (DistributedOptimizer changes it in place): wrap a "
            "new optimizer."
        )


def _check(optimizer: Any, backward_passes_per_step: int, sync: SyncModel | None) -> None:
    if not isinstance(optimizer, keras.optimizers.Optimizer):
        raise TypeError(
            f"DistributedOptimizer wraps a keras.optimizers.Optimizer, got {type(optimizer)!r}. "
            "Optimizers of tf.compat.v1 and tf_keras are not Keras 3's."
        )
    if sync is not None and not isinstance(sync, SyncModel):
        raise TypeError(f"sync must be a trepak sync model such as trepak.BSP(), got {sync!r}.")
    if backward_passes_per_step < 1:
        raise ValueError(
            f"backward_passes_per_step must be at least 1, got {backward_passes_per_step}."
        )
    inner = getattr(optimizer, "inner_optimizer", optimizer)
    if backward_passes_per_step > 1 and inner.gradient_accumulation_steps:
        raise ValueError(
            "backward_passes_per_step and the optimizer's gradient_accumulation_steps "
            f"({inner.gradient_accumulation_steps}) exclude each other: both sum gradients over "
            "passes. Use one of them."
        )

"""What a Keras model has of distributed optimizers."""

from __future__ import annotations

from typing import Any

import keras

from trepak.horovod_ext import basics
from trepak.tf_plugins.model.model_hooks import flush_hooks
from trepak.tf_plugins.optimizer.distribution import Distribution


def is_distributed(optimizer: Any) -> bool:
    """Tells whether an optimizer, or the one inside a LossScaleOptimizer, is distributed."""
    return isinstance(getattr(optimizer, "_trepak", None), Distribution)


def optimizers_of(model: Any) -> list[Any]:
    """Returns a model's compiled optimizer, and those that a train_step of its own uses."""
    return list(named_optimizers_of(model).values())


def named_optimizers_of(model: Any) -> dict[str, Any]:
    """Returns a model's optimizers by the attributes that hold them, in lists and dicts too."""
    found: dict[str, Any] = {}
    # Keras' own books hold them as well, under names that begin with an underscore.
    for name, value in sorted(vars(model).items(), key=lambda item: item[0].startswith("_")):
        held: dict[str, Any] = {name: value}
        if isinstance(value, list | tuple | dict) and not name.startswith("_"):
            items = value.items() if isinstance(value, dict) else enumerate(value)
            held = {f"{name}[{key}]": one for key, one in items}
        for place, one in held.items():
            known = any(one is other for other in found.values())
            if isinstance(one, keras.optimizers.Optimizer) and not known:
                found[place] = one
    return found


def process_set_of(model: Any) -> basics.ProcessSet:
    """Returns the ranks that train a model together: those of its optimizer, by default all."""
    for optimizer in filter(is_distributed, optimizers_of(model)):
        return optimizer._trepak.reducer.options.process_set  # type: ignore[no-any-return]
    return basics.global_process_set


def asynchronous_steps(model: Any) -> list[Any]:
    """Returns the `Step` of each of a model's optimizers whose ranks go at their own pace."""
    return [step for step in _steps(model) if not step.is_synchronous]


def synchronous_steps(model: Any) -> list[Any]:
    """Returns the `Step` of each of a model's optimizers that all ranks take together."""
    return [step for step in _steps(model) if step.is_synchronous]


def diverging_steps(model: Any) -> list[Any]:
    """Returns the `Step` of each of a model's optimizers that lets ranks' weights differ."""
    return [step for step in _steps(model) if step.diverges]


def counting_steps(model: Any) -> list[Any]:
    """Returns the `Step` of each of a model's optimizers that wants to be told of samples."""
    return [step for step in _steps(model) if step.counts_samples]


def _steps(model: Any) -> list[Any]:
    return [one._trepak.step for one in optimizers_of(model) if is_distributed(one)]


def check_rows(model: Any) -> None:
    """Checks that a model's optimizers go with the rows of its `DistributedEmbedding` layers.

    Raises:
        ValueError: gradients are scaled, or ranks do not apply the same gradients in each step.
    """
    if not any(getattr(one, "has_rows_on_ranks", False) for one in model._flatten_layers()):
        return
    if any(isinstance(one, keras.optimizers.LossScaleOptimizer) for one in optimizers_of(model)):
        raise ValueError(
            "a LossScaleOptimizer would train the rows of a DistributedEmbedding with scaled "
            "gradients: compile without it, and take mixed_bfloat16 in place of mixed_float16."
        )
    if diverging_steps(model):
        raise ValueError(
            "with a DistributedEmbedding all ranks look up rows together, but the optimizer's "
            "sync= lets each go at its own pace, or apply its own gradients: use "
            "sync=trepak.BSP()."
        )


def flush(model: Any) -> None:
    """Applies what waits in a model's optimizers, and what acts around it; a collective call."""
    flush_hooks(model)
    for optimizer in filter(is_distributed, optimizers_of(model)):
        optimizer.flush()

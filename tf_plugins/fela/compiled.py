"""What a model must be compiled with, to be trained by tokens."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import keras
from keras.src.backend import get_keras_mask

from trepak.tf_plugins.model.distributed_models import is_distributed
from trepak.tf_plugins.optimizer.wrappers import DistributedOptimizer
from trepak.tf_plugins.sync.bsp import BSP

_MEANS = ("sum_over_batch_size", "mean")


def distribute(model: Any) -> None:
    """Makes a model's optimizer distributed, in place, if it is not.

    Raises:
        ValueError: it is distributed in a way that tokens don't go with; names the option.
    """
    optimizer = model.optimizer
    if not is_distributed(optimizer):
        DistributedOptimizer(optimizer)
    kept = optimizer._trepak
    options = kept.reducer.options
    refused = {
        "sync": not isinstance(kept.sync, BSP),
        "transport": options.transport is not None,
        "process_set": options.process_set.process_set_id != 0,
        "backward_passes_per_step": kept.accumulator is not None,
        "compression": options.compression is not type(options)().compression,
        "op": options.op != type(options)().op,
    }
    for name, is_wrong in refused.items():
        if is_wrong:
            raise ValueError(
                f"the optimizer is a DistributedOptimizer with {name}=, and Fela puts gradients of "
                f"all ranks together in its own way: leave {name} out."
            )
    inner = getattr(optimizer, "inner_optimizer", optimizer)
    if inner.gradient_accumulation_steps:
        raise ValueError(
            "the optimizer has gradient_accumulation_steps, and an iteration of Fela is a step: "
            "leave them out, and give fit a larger batch_size."
        )


def check_subset(model: Any) -> None:
    """Checks that an optimizer can update some of a model's variables on some ranks.

    Raises:
        ValueError: it can't.
    """
    if isinstance(model.optimizer, keras.optimizers.LossScaleOptimizer):
        raise ValueError(
            "a LossScaleOptimizer judges by all gradients whether they are finite, and ranks "
            "outside of Fela's subset do not have all: leave subset out, or use mixed_bfloat16."
        )
    if model.optimizer.global_clipnorm is not None:
        raise ValueError(
            "the optimizer has a global_clipnorm, whose norm no rank outside of Fela's subset "
            "knows: leave subset out, or use clipnorm."
        )


def check_staleness(model: Any, staleness: int) -> None:
    """Checks that a model can be updated by what was computed before other updates.

    Raises:
        ValueError: it can't.
    """
    if isinstance(model.optimizer, keras.optimizers.LossScaleOptimizer):
        raise ValueError(
            "a LossScaleOptimizer may change its scale while tokens of Fela's iterations that are "
            "ahead go by the one before: leave staleness out, or use mixed_bfloat16."
        )
    for layer in model._flatten_layers():
        if not isinstance(layer, keras.layers.BatchNormalization):
            continue
        least = staleness / (staleness + 1)
        if float(layer.momentum) < least:
            raise ValueError(
                f"layer {layer.name!r} has momentum {layer.momentum}: {staleness + 1} iterations "
                "that change its moving variance from one value could make it negative. With "
                f"staleness {staleness} the momentum is {least:.3g} at least."
            )


def check(model: Any) -> None:
    """Checks that tokens' losses and gradients add up to those of a compiled model.

    Raises:
        ValueError: they don't; says why and what to do.
    """
    name = f"model {model.name!r}"
    for method in ("train_step", "compute_loss"):
        if getattr(type(model), method) is not getattr(keras.Model, method):
            raise ValueError(
                f"{name} has a {method} of its own, which Fela would not call: its step is made of "
                "tokens. Compile a keras.Model with loss= and metrics=."
            )
    if model._compile_loss is None:
        raise ValueError(f"{name} is compiled without a loss: Fela trains by the one of compile().")
    if model.steps_per_execution != 1:
        raise ValueError(f"{name} runs steps in blocks: leave steps_per_execution at 1.")
    for loss in keras.tree.flatten(model._compile_loss._user_loss):
        reduction = getattr(loss, "reduction", _MEANS[0])
        if reduction not in _MEANS:
            raise ValueError(
                f"the loss {getattr(loss, 'name', loss)!r} of {name} has reduction={reduction!r}, "
                "and tokens' losses are put together as means over samples: use "
                f"reduction={_MEANS[0]!r}."
            )


@contextlib.contextmanager
def no_masks(model: Any, outputs: Sequence[Any]) -> Iterator[None]:
    """Has losses raise ValueError that Keras would divide by what no mask hides.

    How much that is of all ranks' samples, no token knows.

    Args:
        model: whose losses are called within the block.
        outputs: what they are called with; it has masks of layers.

    Raises:
        ValueError: an output has a mask, or a loss makes one; names it.
    """

    def check(value: Any, what: str) -> Any:
        if get_keras_mask(value) is not None:
            raise ValueError(
                f"{what} of model {model.name!r} has a mask, by which Keras divides a loss by what "
                "a batch does not mask: tokens' losses would not add up. Give sample_weight "
                "instead, 0 for what is not to count."
            )
        return value

    def checking(name: str, call: Callable[..., Any]) -> Callable[..., Any]:
        return lambda *given, **named: check(call(*given, **named), f"the loss {name!r}")

    for one in outputs:
        check(one, "an output")
    losses = {id(one.loss): one.loss for one in model._compile_loss._flat_losses}.values()
    plain = [vars(loss).get("call") for loss in losses]
    for loss in losses:
        loss.call = checking(loss.name, loss.call)
    try:
        yield
    finally:
        for loss, call in zip(losses, plain, strict=True):
            loss.call = call
            if call is None:  # its class has it
                del loss.call

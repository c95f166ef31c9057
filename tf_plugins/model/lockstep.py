"""A model's train function while ranks agree before each step."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from trepak.horovod_ext.basics import ProcessSet
from trepak.tf_plugins.callbacks.epoch_limit import in_lockstep
from trepak.tf_plugins.model.model_hooks import ModelHook, attach, detach

_NAME = "lockstep"


def go_in_lockstep(model: Any, at_end: Callable[[], None], process_set: ProcessSet) -> None:
    """Wraps a model's train function by `in_lockstep`, until `out_of_lockstep`."""

    def wrap(model: Any, plain: Any) -> Any:
        return in_lockstep(plain, model.steps_per_execution, at_end, process_set)

    attach(model, ModelHook(_NAME, train_function=wrap))


def out_of_lockstep(model: Any) -> None:
    """Gives a model its plain train function back."""
    detach(model, _NAME)

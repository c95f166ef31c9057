"""A model's train function while ranks agree before each step."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from trepak.horovod_ext.basics import ProcessSet
from trepak.tf_plugins.callbacks.epoch_limit import in_lockstep


def go_in_lockstep(model: Any, at_end: Callable[[], None], process_set: ProcessSet) -> None:
    """Wraps a model's train function by `in_lockstep`, until `out_of_lockstep`."""
    plain = model.train_function
    function: Any = in_lockstep(plain, model.steps_per_execution, at_end, process_set)
    function._trepak_plain = plain
    model.train_function = function


def out_of_lockstep(model: Any) -> None:
    """Gives a model its plain train function back."""
    function = model.train_function
    model.train_function = getattr(function, "_trepak_plain", function)

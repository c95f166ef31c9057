"""A model's train function while ranks agree before each step."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

from trepak.horovod_ext import exchange
from trepak.horovod_ext.basics import ProcessSet
from trepak.tf_plugins.model.model_hooks import ModelHook, attach, detach

BATCHES_AT_HAND = "batches at hand"  # the exchange before each step

_NAME = "lockstep"


def go_in_lockstep(model: Any, at_end: Callable[[], None], process_set: ProcessSet) -> None:
    """Has an epoch of `fit` end where the first rank has no more data, until `out_of_lockstep`.

    Args:
        model: the model.
        at_end: called on all ranks when the data has ended.
        process_set: the ranks that train together.
    """

    def wrap(model: Any, plain: Callable[[Any], Any]) -> Callable[[Any], Any]:
        steps = model.steps_per_execution  # batches that one call takes

        def step(iterator: Any) -> Any:
            batches = list(itertools.islice(iterator, steps))
            fewest = min(exchange.gather(len(batches), BATCHES_AT_HAND, process_set))
            if not fewest:
                at_end()
                raise StopIteration  # as Keras' own function does at the end of the data
            return plain(batches[:fewest])

        return step

    attach(model, ModelHook(_NAME, train_function=wrap))


def out_of_lockstep(model: Any) -> None:
    """Gives a model its plain train function back."""
    detach(model, _NAME)

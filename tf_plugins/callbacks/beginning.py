"""What ranks do alike when `fit` begins, whatever each of them has done before."""

from __future__ import annotations

import contextlib
import warnings
from typing import Any

import keras

from trepak.horovod_ext import basics, exchange
from trepak.tf_plugins.model.distributed_models import is_distributed, optimizers_of
from trepak.tf_plugins.optimizer.distributed_tape import reducers_of_tapes


def begin_together(model: Any, process_set: basics.ProcessSet) -> None:
    """Has all ranks agree anew where one has not taken the others' steps; a collective call.

    Such as a rank that has loaded or compiled the model anew between two `fit`. A step agrees with
    the other ranks once, when it is first traced: all of them trace it anew then, or none.

    Half a step's sum of gradients is dropped on all ranks where they have summed different numbers
    of passes, and where an exception has ended a `fit` of one of them.
    """
    optimizers = [one for one in optimizers_of(model) if is_distributed(one)]
    kept = [one._trepak for one in optimizers]
    tapes = [
        one for one in reducers_of_tapes() if one.options.process_set.ranks == process_set.ranks
    ]
    agreed = [model.train_function is None, *(one.agreement() for one in [*kept, *tapes])]
    passes = [0 if one.accumulator is None else one.accumulator.summed() for one in kept]
    mine = [agreed, passes, any(one.interrupted for one in kept)]
    everyone = exchange.gather(mine, "what was agreed on before", process_set)
    if any(theirs[1] != passes or theirs[2] for theirs in everyone):
        for one in optimizers:
            one._trepak.forget_passes(one)
    # Ranks of an elastic job come and go, and agree on nothing that a step keeps.
    if not basics.is_elastic() and any(theirs[0] != agreed for theirs in everyone):
        for one in [*kept, *tapes]:
            one.forget()
        model.train_function = None


def build_together(model: Any, process_set: basics.ProcessSet) -> bool:
    """Builds the model where another rank has, and this one not yet; a collective call.

    Returns:
        Whether all ranks have all weights; else they are made in the first batch.
    """
    complete = is_complete(model)
    mine = [complete, _shapes(model) if complete else None]
    everyone = exchange.gather(mine, "whether the model is built", process_set)
    if all(done for done, _ in everyone):
        return True
    shapes = next((shapes for done, shapes in everyone if done and shapes), None)
    if shapes is None:
        return False
    if not complete:
        _build(model, shapes)
    return all(exchange.gather(is_complete(model), "whether it is built now", process_set))


def is_complete(model: Any) -> bool:
    """Tells whether all weights exist; a model without call() is never `built` itself."""
    layers = model._flatten_layers(include_self=False)
    return bool(model.built or all(layer.built for layer in layers))


def _shapes(model: Any) -> Any:
    """Returns the shapes that a model was built for, JSON-able; None if it doesn't tell."""
    with contextlib.suppress(Exception):  # a user's own get_build_config, or what JSON has not
        return keras.saving.serialize_keras_object(model.get_build_config())
    return None


def _build(model: Any, shapes: Any) -> None:
    # Where Keras can't, the first batch builds it.
    with warnings.catch_warnings(), contextlib.suppress(Exception):
        warnings.simplefilter("ignore")
        model.build_from_config(keras.saving.deserialize_keras_object(shapes))

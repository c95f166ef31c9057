"""What ranks compare of a model and its optimizers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import keras
import tensorflow as tf

from trepak.horovod_ext.agreement import Fact, Values
from trepak.horovod_ext.variables import key
from trepak.tf_plugins.callbacks.state_average import ids_of_weights
from trepak.tf_plugins.model.distributed_models import is_distributed
from trepak.tf_plugins.optimizer.distributed_tape import local_to_tapes
from trepak.tf_plugins.optimizer.optimizer_facts import facts_of


@dataclass(frozen=True)
class Compared:
    """What is compared of a model and its optimizers."""

    model: Any
    optimizers: dict[str, Any]
    local: set[Any]
    averaged: bool

    def options(self) -> list[Fact]:
        """Returns the optimizers as facts."""
        named = self.optimizers.items()
        return [
            fact
            for name, one in named
            for fact in facts_of(one, "the optimizer" if name == "optimizer" else name)
        ]

    def values(self, cause: str, rates: bool = False) -> Values:
        """Returns what must have the same values: the weights, and the optimizers' state.

        Learning rates are facts; with `rates`, they are values as well.
        """
        optimizers = self.optimizers.values()
        distributed = [one for one in optimizers if is_distributed(one)]
        local = self.local | local_to_tapes()
        local = local.union(*(one._trepak.reducer.local for one in distributed))
        own = any(not one._trepak.step.shares_slots for one in distributed)
        slots = [] if own else [v for one in optimizers for v in _state_of(one, local, rates)]
        steps = max((int(one.iterations) for one in optimizers), default=0)
        return Values(
            [weight for weight in self._weights() if key(weight) not in local],
            [slot for slot in slots if key(slot) not in local],
            cause,
            steps,
        )

    def rates(self, cause: str) -> Values:
        """Returns the learning rates and counts of steps alone, where a rank has no weights yet."""
        inner = [getattr(one, "inner_optimizer", one) for one in self.optimizers.values()]
        held = [v for one in inner for v in (one._iterations, one._learning_rate)]
        return Values(unnamed=[v for v in held if isinstance(v, keras.Variable)], cause=cause)

    def _weights(self) -> list[Any]:
        weights = ids_of_weights(self.model)

        def is_shared(weight: Any) -> bool:
            floating = tf.as_dtype(weight.dtype).is_floating
            return id(weight) in weights or (self.averaged and floating)

        return [weight for weight in self.model.weights if is_shared(weight)]


def _state_of(optimizer: Any, local: set[Any], rates: bool) -> list[Any]:
    """Returns an optimizer's state, without what it has of local variables and of half a step."""
    inner = getattr(optimizer, "inner_optimizer", optimizer)
    kept = {id(v) for v in getattr(inner, "_accumulated_gradients", None) or ()}
    if not rates:
        kept.add(id(getattr(inner, "_learning_rate", None)))
    # Keras names what an optimizer has of a variable by the variable's path.
    known = getattr(inner, "_trainable_variables", None) or ()
    prefixes = [v.path.replace("/", "_") + "_" for v in known if key(v) in local]
    return [
        variable
        for variable in optimizer.variables
        if id(variable) not in kept
        and not any(variable.name.startswith(prefix) for prefix in prefixes)
    ]

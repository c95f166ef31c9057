"""What a distributed optimizer knows beyond Keras."""

from __future__ import annotations

import dataclasses
from typing import Any, Protocol

import tensorflow as tf

from trepak.horovod_ext import basics, exchange
from trepak.horovod_ext.agreement import Fact, Values, check_alike
from trepak.horovod_ext.gradient_reducer import GradientReducer
from trepak.horovod_ext.reduce_options import ReduceOptions
from trepak.tf_plugins.model.tracing import reject_replicas
from trepak.tf_plugins.optimizer.gradient_accumulator import GradientAccumulator
from trepak.tf_plugins.optimizer.optimizer_facts import facts_of


class _SyncModel(Protocol):
    """What makes steps; see `SyncModel`, which knows this module."""

    def step_for(self, distribution: Distribution) -> Any: ...


class Distribution:
    """A distributed optimizer's sync model, steps, reducer and accumulator.

    Kept in one object so that a LossScaleOptimizer and the optimizer inside it can share it.
    """

    def __init__(
        self, sync: _SyncModel, options: ReduceOptions, name: str, passes: int, mean: bool
    ) -> None:
        """Makes one; `passes` backward passes are summed, or averaged with `mean`, per step."""
        self.made_with = (sync, options, name, passes, mean)
        self.sync = sync
        self.reducer = GradientReducer(options, name)
        self.accumulator = GradientAccumulator(passes, mean) if passes > 1 else None
        # True while a LossScaleOptimizer, which has reduced, has the optimizer inside it apply.
        self.delegating = False
        self.step = sync.step_for(self)  # a `Step`
        # Inside an update: the iterations and the learning rate of what is applied.
        self.iterations: Any = None
        self.learning_rate: Any = None
        # Graph and variables of gradients that compute_gradients() has reduced.
        self.computed: Any = None
        self.agreed = False  # that all ranks train with the same optimizer and options
        self.interrupted = False  # an exception has ended the last `fit`

    def renewed(self) -> Distribution:
        """Returns one with the same settings and no state."""
        return Distribution(*self.made_with)

    def agreement(self) -> list[Any]:
        """Returns what all ranks have agreed on, by which a step does or skips collectives."""
        return [*self.reducer.agreement(), self.step.session]

    def forget(self) -> None:
        """Has the next step agree anew; for all ranks together, and graphs traced anew."""
        self.step.end()
        self.reducer.forget()
        self.step = self.sync.step_for(self)

    def forget_passes(self, optimizer: Any) -> None:
        """Drops the passes that were summed since the last real step, as if there were none."""
        self.interrupted = False
        if self.accumulator is None:
            return
        if self.step.is_synchronous:  # else they are not counted
            inner = getattr(optimizer, "inner_optimizer", optimizer)
            inner._iterations.assign_sub(self.accumulator.summed())
        self.accumulator.reset()

    def agree(self, optimizer: Any) -> None:
        """Checks once that all ranks train with the same optimizer and options.

        A collective call, the first time.

        Raises:
            ValueError: they don't; names the first thing that differs, and the ranks.
        """
        reject_replicas()
        # Elastic ranks join later, when this step is long traced: `fit` compares at its beginning.
        if self.agreed or basics.is_elastic() or not exchange.is_possible():
            return
        if self.reducer.takes_part():
            with tf.init_scope():
                facts = [_of_first_step(fact) for fact in facts_of(optimizer)]
            process_set = self.reducer.options.process_set
            check_alike(facts, Values(), "in the first step", process_set)
        self.agreed = True


def _of_first_step(fact: Fact) -> Fact:
    """Returns an optimizer's fact with what to do before any callback has changed it."""
    if not fact.name.endswith("learning_rate"):
        return fact
    return dataclasses.replace(fact, remedy="give all ranks the same learning rate")

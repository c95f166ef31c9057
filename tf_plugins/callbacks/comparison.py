"""What must be alike on all ranks of a Keras model, compared while `fit` trains it."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Sequence
from typing import Any

import keras

from trepak.horovod_ext import basics, exchange
from trepak.horovod_ext.agreement import Fact, Values, check_alike, make_alike
from trepak.horovod_ext.variables import key
from trepak.tf_plugins.callbacks.beginning import begin_together, build_together
from trepak.tf_plugins.callbacks.compared import Compared
from trepak.tf_plugins.model.distributed_models import (
    asynchronous_steps,
    diverging_steps,
    flush,
    is_distributed,
    named_optimizers_of,
    optimizers_of,
)
from trepak.tf_plugins.model.layer_state import layer_facts
from trepak.tf_plugins.model.turns import check_turn

_BEGIN_CAUSE = (
    "Put BroadcastGlobalVariablesCallback(0) into callbacks=, after whatever restores or sets "
    "weights (BackupAndRestore too), and change no weights after it."
)
_LATER_CAUSE = (
    "Something has changed them on one rank alone (a callback, a train_step, a layer that updates "
    "its own weights): let all ranks do it, or none; or a gradient was not reduced."
)
_FIRST_CAUSE = (
    "They were made in the first step, where each rank draws its own: put "
    "BroadcastGlobalVariablesCallback(0) into callbacks=, or build the model before fit."
)
_PLAIN_CAUSE = (
    "The model's optimizer is not distributed, so every rank trains for itself: wrap it, "
    "model.compile(optimizer=hvd.DistributedOptimizer(optimizer), …). A copy of a distributed one "
    "(deepcopy of the model, clone_model with compile_from_config, pickle, deserialize, a loaded "
    "model) is a plain Keras optimizer."
)
_EPOCHS_REMEDY = (
    "give all ranks the same epochs and initial_epoch (what BackupAndRestore goes on from must be "
    "on all ranks)"
)

_STOPS_REMEDY = (
    "let all ranks decide alike: put MetricAverageCallback before EarlyStopping and the like"
)
_TOGETHER = "give all ranks the same, as they take their steps together"
_BROADCAST = "BroadcastGlobalVariablesCallback"
_CALLBACKS_REMEDY = "give all ranks the same callbacks, with the same root_rank"


def compare_ranks(
    model: Any,
    optimizer: Any = None,
    process_set: basics.ProcessSet | None = None,
    local_variables: Iterable[Any] = (),
    averaged: bool = False,
) -> None:
    """Checks that all ranks train alike: the same optimizers, layers' state, and values.

    A collective call, for loops of one's own; `fit` makes it when training begins and ends, and at
    each epoch's end. Variables that are local to a rank are left out, as are seeds.

    Args:
        model: a built Keras model.
        optimizer: what trains it, or a list; by default the optimizers that are its attributes.
        process_set: the ranks that train it; by default those of its optimizer.
        local_variables: further variables that each rank keeps its own of.
        averaged: also compare what training changes without gradients (BatchNorm's statistics),
            which `average_state` makes equal.

    Raises:
        ValueError: on every rank, naming the first thing that differs, the ranks, the likely cause.
        HorovodInternalError: a rank has left the job.
    """
    optimizers = named_optimizers_of(model)
    if optimizer is not None:
        given = optimizer if isinstance(optimizer, list | tuple) else [optimizer]
        optimizers = {f"optimizer {number}": one for number, one in enumerate(given)}
    distributed = [one for one in optimizers.values() if is_distributed(one)]
    for one in distributed:
        one.flush()
    if process_set is None and distributed:
        process_set = distributed[0]._trepak.reducer.options.process_set
    compared = Compared(model, optimizers, {key(v) for v in local_variables}, averaged)
    facts = [*compared.options(), *layer_facts(model)]
    chosen = process_set or basics.global_process_set
    check_alike(facts, compared.values(_LATER_CAUSE), "now", chosen)


class KeepsAlike(keras.callbacks.Callback):
    """A callback that gives all ranks one rank's values, and averages what training changes.

    Attributes:
        root_rank: that rank.
        process_set: the ranks that train together; None: those of the model's optimizer.
        local: keys of variables that each rank keeps its own of.
        broadcast_done: whether all ranks have the values.
    """

    root_rank: int
    process_set: basics.ProcessSet | None
    local: set[Any]
    broadcast_done: bool


class Comparison(keras.callbacks.Callback):
    """Compares the ranks while `fit` trains; `fit` makes its own.

    It comes last in the list of callbacks, so that it sees what the others have done.
    """

    def __init__(
        self,
        process_set: basics.ProcessSet,
        broadcast: KeepsAlike | None = None,
        epochs: int = 1,
        initial_epoch: int = 0,
        every: int = 0,
    ) -> None:
        """Makes the callback.

        Args:
            process_set: the ranks that train together.
            broadcast: the callback that broadcasts and averages, if there is one.
            epochs: where training ends, as in `fit`.
            initial_epoch: where it begins.
            every: batches between two comparisons of values; 0 for none within an epoch.
        """
        super().__init__()
        self._process_set, self._broadcast = process_set, broadcast
        self._epochs, self._initial_epoch = epochs, initial_epoch
        self._batches, self._every = 0, every
        self._began = False  # values have been compared since training began
        self._apart: list[Any] = []  # the optimizers, where ranks are alike at flushes only
        self._rates: set[tuple[float, ...]] = set()  # of the epoch's steps, where they do
        self._moved = False  # some epoch's steps had several

    def begin(self, model: Any) -> None:
        """Compares what no broadcast makes equal, before callbacks of ranks that differ meet.

        Raises:
            ValueError: ranks have other optimizers or options; names the first that differs.
        """
        facts = self._compared(model).options()
        options = [fact for fact in facts if not fact.name.endswith("learning_rate")]
        root = None if self._broadcast is None else self._broadcast.root_rank
        options += [
            Fact("steps_per_execution", model.steps_per_execution, _TOGETHER),
            Fact("run_eagerly", bool(model.run_eagerly), _TOGETHER),
            Fact("TREPAK_COMPARE_STEPS", self._every, _TOGETHER),
            Fact(f"whether {_BROADCAST} is used", self._broadcast is not None, _CALLBACKS_REMEDY),
            Fact(f"{_BROADCAST}'s root_rank", root, _CALLBACKS_REMEDY),
        ]
        check_alike(options, Values(), "when fit begins", self._process_set)
        check_turn(self._process_set)
        for one in filter(is_distributed, optimizers_of(model)):
            one._trepak.agreed = True  # but for what the broadcast makes equal
        begin_together(model, self._process_set)

    def on_train_begin(self, logs: Any = None) -> None:
        """Compares everything before the first step, unless variables are made in it."""
        built = self._is_built()
        if built and is_distributed(self.model.optimizer):
            self.model.optimizer.ensure_built(self.model.trainable_variables)
        begin = self.model._initial_epoch or self._initial_epoch  # by BackupAndRestore, or fit
        facts = [Fact("the number of epochs to train", self._epochs - begin, _EPOCHS_REMEDY)]
        if self._broadcast is None:
            self._begin_alike(built)
        self._began = built  # else variables are made in the first step
        if built:
            facts += layer_facts(self.model)
            self._compare("when training begins", _BEGIN_CAUSE, facts)
        else:
            check_alike(facts, Values(), "when training begins", self._process_set)

    def _is_built(self) -> bool:
        """Tells whether all ranks have all weights; a collective call."""
        if self._broadcast is None:
            return build_together(self.model, self._process_set)
        return bool(self._broadcast.broadcast_done)  # all have agreed on that

    def _begin_alike(self, built: bool) -> None:
        """Gives all ranks the first one's values, where nobody broadcasts and no step was taken.

        Later, ranks that differ have trained apart: that is an error.
        """
        optimizers = optimizers_of(self.model)
        steps = sum(int(one.iterations) for one in optimizers)
        if any(exchange.gather(steps, "steps before", self._process_set)):
            return
        compared = self._compared(self.model)
        values = compared.rates(_BEGIN_CAUSE)
        if built:
            values = compared.values(_BEGIN_CAUSE, rates=True)
        if make_alike(values, self._process_set) and basics.rank() == self._process_set.ranks[0]:
            warnings.warn(
                "the ranks began with different weights or rates, and there is no "
                "BroadcastGlobalVariablesCallback in callbacks=: all ranks go on with this rank's "
                f"({basics.rank()}). Add the callback: it also keeps steps and BatchNorm's "
                "statistics together.",
                stacklevel=2,
            )

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        """Compares after the first step what was made in it, and after every few, where asked."""
        self._batches += 1
        first = self._batches == 1
        if first:
            optimizers = optimizers_of(self.model)
            self._apart = optimizers if diverging_steps(self.model) else []
            first = not (self._began and any(map(is_distributed, optimizers)))
        if self._apart:
            self._rates.add(tuple(float(one.learning_rate) for one in self._apart))
            return
        if first or (self._every > 0 and self._batches % self._every == 0):
            cause = "" if self._began or self._broadcast else _FIRST_CAUSE
            self._compare("after a step", cause, self._new_facts(), averaged=False)

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        """Compares what training and callbacks may have changed."""
        self._moved |= len(self._rates) > 1
        self._rates.clear()
        stops = Fact("whether training stops", bool(self.model.stop_training), _STOPS_REMEDY)
        self._compare("at an epoch's end", "", [stops, *self._new_facts()])

    def on_train_end(self, logs: Any = None) -> None:
        """Compares what callbacks have done last, such as restoring the best weights."""
        check_turn(self._process_set)  # another thread may have come meanwhile
        self._compare("when training ends")

    def _new_facts(self) -> list[Fact]:
        """Returns what layers hold, the first time after they were built in a step."""
        began, self._began = self._began, True
        return [] if began else layer_facts(self.model)

    def _compared(self, model: Any, averaged: bool = True) -> Compared:
        local = set() if self._broadcast is None else self._broadcast.local
        averages = averaged and self._broadcast is not None
        return Compared(model, named_optimizers_of(model), local, averages)

    def _compare(
        self, when: str, cause: str = "", facts: Sequence[Fact] = (), averaged: bool = True
    ) -> None:
        flush(self.model)
        plain = not any(map(is_distributed, optimizers_of(self.model)))
        compared = self._compared(self.model, averaged)
        values = compared.values(cause or (_PLAIN_CAUSE if plain else _LATER_CAUSE))
        options = compared.options()
        if self._rates_move():
            options = [fact for fact in options if not fact.name.endswith("learning_rate")]
        check_alike([*facts, *options], values, when, self._process_set)

    def _rates_move(self) -> bool:
        """Tells whether ranks that go at their own pace change rates by their own steps.

        As a warm-up does: its rates differ by rank, and are meant to. A collective call.
        """
        if not asynchronous_steps(self.model):
            return False
        return any(exchange.gather(self._moved, "whether rates move", self._process_set))

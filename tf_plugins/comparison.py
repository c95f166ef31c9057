"""What must be alike on all ranks of a Keras model, compared while `fit` trains it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import keras
import tensorflow as tf

from trepak.horovod_ext import basics
from trepak.horovod_ext.agreement import Fact, Values, check_alike
from trepak.horovod_ext.variables import key
from trepak.tf_plugins.distributed_models import (
    flush,
    is_distributed,
    optimizers_of,
    paces,
    process_set_of,
)
from trepak.tf_plugins.layer_state import layer_facts
from trepak.tf_plugins.optimizer_facts import facts_of

_AT_BEGIN = "when training begins"
_BEGIN_CAUSE = (
    "Put BroadcastGlobalVariablesCallback(0) into callbacks=, after whatever restores or sets "
    "weights (BackupAndRestore too), and change no weights after it."
)
_LATER_CAUSE = (
    "Something has changed them on one rank alone (a callback, a train_step, a layer that updates "
    "its own weights): let all ranks do it, or none; or a gradient was not reduced."
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


def compare_ranks(
    model: Any,
    process_set: basics.ProcessSet | None = None,
    local_variables: Iterable[Any] = (),
    averaged: bool = False,
) -> None:
    """Checks that all ranks train alike: the same optimizers, layers' state, and values.

    A collective call, for loops of one's own; `fit` makes it when training begins and at each
    epoch's end. Variables that are local to a rank are left out, as are seeds.

    Args:
        model: a built Keras model; its optimizers are those that are its attributes.
        process_set: the ranks that train it; by default those of its optimizer.
        local_variables: further variables that each rank keeps its own of.
        averaged: also compare what training changes without gradients (BatchNorm's statistics),
            which `average_state` makes equal.

    Raises:
        ValueError: on every rank, naming the first thing that differs, the ranks, the likely cause.
        HorovodInternalError: a rank has left the job.
    """
    local = {key(variable) for variable in local_variables}
    flush(model)
    _compare(model, process_set or process_set_of(model), local, averaged, "now", _LATER_CAUSE)


def _compare(
    model: Any,
    process_set: basics.ProcessSet,
    local: set[Any],
    averaged: bool,
    when: str,
    cause: str,
    steps: int = 0,
    facts: Sequence[Fact] = (),
) -> None:
    told = [*facts, *layer_facts(model)] if when == _AT_BEGIN else list(facts)
    for optimizer in optimizers_of(model):
        told += facts_of(optimizer)
    shared = Values(*_shared_variables(model, local, averaged), cause, steps)
    check_alike(told, shared, when, process_set)


def _shared_variables(model: Any, local: set[Any], averaged: bool) -> tuple[list[Any], list[Any]]:
    """Returns what must have the same values: the model's weights, and its optimizers' state."""
    distributed = [one for one in optimizers_of(model) if is_distributed(one)]
    local = local.union(*(one._trepak.reducer.local for one in distributed))
    layers = [model, *model._flatten_layers(include_self=False)]
    trained = {id(v) for layer in layers for v in layer._trainable_variables}  # or frozen
    weights = [
        weight
        for weight in model.weights
        if id(weight) in trained or (averaged and tf.as_dtype(weight.dtype).is_floating)
    ]
    own_pace = any(not pace.shares_slots for pace in paces(model))
    slots = [] if own_pace else [v for one in optimizers_of(model) for v in _state_of(one, local)]
    shared = [weight for weight in weights if key(weight) not in local]
    return shared, [slot for slot in slots if key(slot) not in local]


def _state_of(optimizer: Any, local: set[Any]) -> list[Any]:
    """Returns an optimizer's state, without what it has of local variables and of half a step."""
    inner = getattr(optimizer, "inner_optimizer", optimizer)
    kept = {id(v) for v in getattr(inner, "_accumulated_gradients", None) or ()}
    # Keras names what an optimizer has of a variable by the variable's path.
    known = getattr(inner, "_trainable_variables", None) or ()
    prefixes = [v.path.replace("/", "_") + "_" for v in known if key(v) in local]
    return [
        variable
        for variable in optimizer.variables
        if id(variable) not in kept
        and not any(variable.name.startswith(prefix) for prefix in prefixes)
    ]


class Comparison(keras.callbacks.Callback):
    """Compares the ranks when training begins and at each epoch's end; `fit` makes its own.

    It comes last in the list of callbacks, so that it sees what the others have done.
    """

    def __init__(
        self,
        process_set: basics.ProcessSet | None = None,
        local: Iterable[Any] = (),
        averaged: bool = False,
        epochs: int = 1,
        initial_epoch: int = 0,
    ) -> None:
        """Makes the callback.

        Args:
            process_set: the ranks that train together; by default those of the optimizer.
            local: keys of variables that each rank keeps its own of.
            averaged: whether another callback averages the state before an epoch's end.
            epochs: where training ends, as in `fit`.
            initial_epoch: where it begins.
        """
        super().__init__()
        self._process_set = process_set
        self._local = set(local)
        self._averaged = averaged
        self._epochs, self._initial_epoch = epochs, initial_epoch
        self._steps_before = 0

    def check_options(self, model: Any) -> None:
        """Compares what no broadcast makes equal, before callbacks of ranks that differ meet.

        Raises:
            ValueError: ranks have other optimizers or options; names the first that differs.
        """
        facts = [fact for one in optimizers_of(model) for fact in facts_of(one)]
        options = [fact for fact in facts if not fact.name.endswith("learning_rate")]
        batches = "give all ranks the same, as they take their steps together"
        options.append(Fact("steps_per_execution", model.steps_per_execution, batches))
        process_set = self._process_set or process_set_of(model)
        check_alike(options, Values(), "when fit begins", process_set)

    def on_train_begin(self, logs: Any = None) -> None:
        """Compares everything, before the first step."""
        for optimizer in filter(is_distributed, optimizers_of(self.model)):
            if optimizer is self.model.optimizer and self.model.built:
                optimizer.ensure_built(self.model.trainable_variables)
        self._steps_before = self._steps()
        begin = self.model._initial_epoch or self._initial_epoch  # by BackupAndRestore, or fit
        epochs = Fact("the number of epochs to train", self._epochs - begin, _EPOCHS_REMEDY)
        self.compare(_AT_BEGIN, _BEGIN_CAUSE, [epochs])

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        """Compares what training and callbacks may have changed."""
        self.compare("at an epoch's end")

    def compare(self, when: str, cause: str = "", facts: Sequence[Fact] = ()) -> None:
        """Compares the ranks; see `compare_ranks`."""
        if paces(self.model) and not self._averaged:
            flush(self.model)  # else the callback that averages has
        plain = not any(map(is_distributed, optimizers_of(self.model)))
        _compare(
            self.model,
            self._process_set or process_set_of(self.model),
            self._local,
            self._averaged,
            when,
            cause or (_PLAIN_CAUSE if plain else _LATER_CAUSE),
            self._steps() - self._steps_before,
            facts,
        )

    def _steps(self) -> int:
        counts = [int(optimizer.iterations) for optimizer in optimizers_of(self.model)]
        return max(counts, default=0)


class StepwiseComparison(Comparison):
    """Compares the ranks after some steps, too: after the first one, or after every few."""

    def __init__(self, every: int = 0, **options: Any) -> None:
        """Makes the callback.

        Args:
            every: batches between two comparisons; 0 compares after the first one only.
            options: see `Comparison`.
        """
        super().__init__(**options)
        self._every = every
        self._batches = 0

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        """Compares, where it is due."""
        self._batches += 1
        due = self._batches % self._every == 0 if self._every else self._batches == 1
        if due and not paces(self.model):  # which are alike at flushes only
            averaged, self._averaged = self._averaged, False  # not in the midst of an epoch
            try:
                self.compare("after a step")
            finally:
                self._averaged = averaged

"""`pipeline(model)`: a step's look-ups and updates beside the steps before and after it.

Sven's four-stage pipeline (thesis, section 6.1.2, Figure 6.2b). In interval k a rank looks up what
batch k + 1 needs (SFP) and computes forward (FP) while the gradients of batch k - 1 are on their
way; it computes backward (BP) while the rows of batch k + 1 are; and it updates the rows of batch
k - 1 (SBP) while the dense gradients of batch k are reduced. TensorFlow runs all of it as one
graph: data orders what depends on each other, and stateful ops go in the order in which they are
traced, which is that of the schedule.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import tensorflow as tf

from trepak.horovod_ext import basics
from trepak.horovod_ext.alltoall import Alltoall, alltoall_async
from trepak.tf_plugins.layers.embedding_batches import (
    Answered,
    Asked,
    Gradients,
    Read,
    Returned,
    Wanted,
)
from trepak.tf_plugins.layers.embedding_schedule import Ahead, AskedAhead, scheduled
from trepak.tf_plugins.model.distributed_models import synchronous_steps
from trepak.tf_plugins.model.flushing import flushing_methods
from trepak.tf_plugins.model.look_ups import embedding_layers, look_ups
from trepak.tf_plugins.model.model_hooks import ModelHook, attach, detach

_NAME = "pipeline"
STAGES = (0, 1, 4)
# The look-up of batch t sees at least the update of batch t - 3.
_PERMITS = 3
_AHEAD = 2  # batches whose ids are under way while one is trained


def pipeline(model: Any, stages: int = 4) -> Any:
    """Has `fit` work on several batches at a time, where their embeddings allow it.

    To be called after `model.compile`, on all ranks. With four stages a look-up misses the updates
    of the two batches before its own, and never more; all are made before evaluation, prediction
    and saving, and when an epoch ends. An epoch ends for all ranks where the first one has no more
    data.

    Args:
        model: a compiled Keras model with `DistributedEmbedding` layers, whose inputs depend on no
            trained weights; it is changed in place and returned.
        stages: 4; or 1, in which only ids travel ahead, which changes no result; or 0, which takes
            the pipeline off again. With `trepak.read_ahead` ids travel from readers.

    Raises:
        ValueError: there are no such layers or stages, or steps are run in blocks.
    """
    if stages not in STAGES:
        raise ValueError(f"stages must be one of {STAGES}, got {stages}.")
    detach(model, _NAME)
    if stages == 0:
        return model
    if not embedding_layers(model):
        raise ValueError("pipeline() needs a model with a trepak.layers.DistributedEmbedding.")
    if getattr(model, "steps_per_execution", 1) != 1:
        raise ValueError("pipeline() can't run steps in blocks: leave steps_per_execution at 1.")
    running = _Pipeline(model, stages)

    def function(model: Any, plain: Any) -> Callable[[Any], Any]:
        del model, plain
        return running.step

    methods = flushing_methods(lambda _: running.flush(), lambda _: running.restart())
    attach(model, ModelHook(_NAME, methods, function, True, finish=running.restart))
    return model


@dataclass
class _Batch:
    """A batch in the pipeline.

    Attributes:
        data: what `train_step` takes; None: this rank has no more.
        asked: by layer, of each of its calls, ids under way, or what readers have told of them.
        at_hand: an alltoall of whether each rank has such a batch; when it is over: whether all do.
        answered: by layer and call, rows under way, as soon as they are.
    """

    data: Any
    asked: list[list[Any]]
    at_hand: Alltoall | bool
    answered: list[list[Answered]] | None = None

    def is_everywhere(self) -> bool:
        """Tells whether all ranks have it; waits for what they say."""
        if isinstance(self.at_hand, Alltoall):
            self.at_hand = bool(tf.reduce_all(self.at_hand.wait()[0] == 1))
        return self.at_hand


class _Pipeline:
    """The batches of one model that are under way on this rank."""

    def __init__(self, model: Any, stages: int) -> None:
        self._model, self._is_whole = model, stages == 4
        self._iterator: Any = None
        self._is_read = False
        self._window: deque[_Batch] = deque()
        self._returned: list[list[Returned]] | None = None  # of the batch before
        self._calls = [1] * len(embedding_layers(model))  # by layer, of a step
        self._ask = self._function(self._asked)
        self._answer = self._function(self._answered)
        self._train = self._function(self._trained)
        self._update = self._function(self._updated)

    def _function(self, plain: Callable[..., Any]) -> Callable[..., Any]:
        return plain if self._model.run_eagerly else _for_any_rows(plain)

    def step(self, iterator: Iterator[Any]) -> Any:
        """Trains on the next batch: Keras' train function.

        Raises:
            StopIteration: a rank has no more data.
        """
        if iterator is not self._iterator:
            self.restart()
            self._iterator = iterator
        while len(self._window) < _AHEAD:
            self._window.append(self._begin(iterator))
        batch = self._window.popleft()
        if not batch.is_everywhere():
            self.restart()
            raise StopIteration  # as Keras' own function does at the end of the data
        # Not before: what one rank begins all must, and Keras calls a rank without data no more.
        self._window.append(self._begin(iterator))
        following = self._window[0] if self._window and self._window[0].is_everywhere() else None
        if batch.answered is None and self._is_whole:
            batch.answered = self._answer(batch.asked)
        returned, self._returned = self._returned, None
        logs, self._returned, answered = self._train(
            batch.data,
            batch.answered or batch.asked,
            returned,
            following.asked if following is not None and self._is_whole else None,
        )
        if following is not None and self._is_whole:
            following.answered = answered
        return logs

    def _begin(self, iterator: Iterator[Any]) -> _Batch:
        data = next(iterator, None)
        self._is_read = isinstance(data, Read) or (data is None and self._is_read)
        if self._is_read:  # its end is there for all ranks at once
            return _Batch(None, [], False) if data is None else self._begin_read(data)
        self._build(data)
        at_hand = alltoall_async(
            tf.fill([basics.size()], tf.constant(int(data is not None))),
            name=f"{self._label}: batches at hand",
        )
        # Who has no more sends empty ids: the others wait for them.
        return _Batch(data, self._nothing() if data is None else self._ask(data), at_hand)

    def _build(self, data: Any) -> None:
        """Makes the tables of a model that makes its layers' variables when it is called first.

        Raises:
            ValueError: this rank has no batch to call it with.
        """
        if all(layer.tables is not None for layer in embedding_layers(self._model)):
            return
        if data is None:
            raise ValueError(
                f"rank {basics.rank()} has no data, and the model {self._model.name!r} is not "
                "built: call it once on all ranks before fit."
            )
        self._model._symbolic_build(data_batch=data)

    def _begin_read(self, data: Read) -> _Batch:
        return _Batch(data.batch, self._ask(data.batch, data.wanted), True)

    def flush(self) -> None:
        """Makes the updates that are left, as soon as all ranks' gradients are here."""
        returned, self._returned = self._returned, None
        if returned is not None:
            self._update(returned)

    def restart(self) -> None:
        """Begins anew: what was looked up and not trained is forgotten."""
        self.flush()
        self._window.clear()
        self._iterator, self._is_read = None, False
        for layer in embedding_layers(self._model):
            if layer.tables is not None:
                layer.tables.permits(reset=True)

    @property
    def _label(self) -> str:
        return str(embedding_layers(self._model)[0].tables.label)

    def _nothing(self) -> list[list[Asked]]:
        layers = zip(embedding_layers(self._model), self._calls, strict=True)
        return [[layer.tables.ask_nothing() for _ in range(calls)] for layer, calls in layers]

    # What follows is traced.

    def _asked(self, data: Any, wanted: Any = None) -> list[list[Asked | Wanted]]:
        model, layers = self._model, embedding_layers(self._model)
        calls = look_ups(model, data)
        self._calls = [len(one) for one in calls]
        if wanted is None:
            pairs = zip(layers, calls, strict=True)
            return [[layer.tables.ask(one) for one in found] for layer, found in pairs]
        return [
            [layer.tables.asked(one, *told) for one, told in zip(found, of_calls, strict=True)]
            for layer, found, of_calls in zip(layers, calls, wanted, strict=True)
        ]

    def _answered(self, asked: list[list[Any]]) -> list[list[Answered]]:
        pairs = zip(embedding_layers(self._model), asked, strict=True)
        return [
            [layer.tables.answer(one, _permits(layer, calls)) for one in calls]
            for layer, calls in pairs
        ]

    def _trained(
        self,
        data: Any,
        batch: Any,
        returned: list[list[Returned]] | None,
        following: list[list[Any]] | None,
    ) -> tuple[Any, list[list[Returned]] | None, list[list[Answered]] | None]:
        layers = embedding_layers(self._model)
        answered = None if following is None else self._answered(following)
        schedules: list[Any] = [(Ahead if self._is_whole else AskedAhead)(calls) for calls in batch]
        with scheduled(layers, schedules):
            logs = self._model._autoconvert_optionals(self._model.train_step)(data)
        if returned is not None:
            self._updated(returned)
        if not self._is_whole:
            return logs, None, answered
        parts = zip(layers, schedules, batch, strict=True)
        gradients = [_left(layer, one, calls) for layer, one, calls in parts]
        # They have time until the next batch is trained. Everybody waits for the dense ones, with
        # which they would share the links: they go when the dense layers are updated.
        dense = [tf.identity(one.value) for one in self._model.trainable_variables]
        with tf.control_dependencies(dense):
            if basics.size() > 1 and synchronous_steps(self._model):
                gradients = self._when_all_have_updated(gradients)
            return logs, self._sent_back(gradients), answered

    def _when_all_have_updated(self, gradients: list[list[Gradients]]) -> list[list[Gradients]]:
        """Returns the gradients when all ranks have updated their dense layers.

        Ranks do not end a reduction at once. What the first ones send next, to all others, would
        hold up the last bytes of those that are still in it, and with them the next reduction.
        """
        zeros = tf.zeros([basics.size()], tf.int64)
        told, _ = alltoall_async(zeros, name=f"{self._label}: updated").wait()
        # Added, because TensorFlow drops a wait on whose values nothing depends.
        with tf.device("CPU"):
            return [
                [one._replace(value_splits=one.value_splits + told) for one in calls]
                for calls in gradients
            ]

    def _sent_back(self, gradients: list[list[Gradients]]) -> list[list[Returned]]:
        layers = zip(embedding_layers(self._model), gradients, strict=True)
        return [[layer.tables.send_back(one) for one in calls] for layer, calls in layers]

    def _updated(self, returned: list[list[Returned]]) -> None:
        for layer, calls in zip(embedding_layers(self._model), returned, strict=True):
            for one in calls:
                layer.tables.update(one, _permits(layer, calls))


def _for_any_rows(plain: Callable[..., Any]) -> Callable[..., Any]:
    """Returns a function that is traced once for each pattern of arguments that are None.

    How many rows others want differs from batch to batch: without this TensorFlow would trace the
    first batch's numbers, and those of the second.
    """
    function = tf.function(plain, reduce_retracing=True, autograph=False)
    traced = set()

    def call(*arguments: Any) -> Any:
        pattern = tuple(one is None for one in arguments)
        if pattern not in traced:
            traced.add(pattern)
            function.get_concrete_function(*tf.nest.map_structure(_any_rows, arguments))
        return function(*arguments)

    return call


def _any_rows(value: Any) -> Any:
    if value is None:
        return None
    spec = tf.type_spec_from_value(value)
    if isinstance(spec, tf.TensorSpec) and spec.shape.rank:
        return tf.TensorSpec([None, *spec.shape[1:]], spec.dtype)
    return spec


def _permits(layer: Any, calls: Sequence[Any]) -> int:
    return _PERMITS * len(calls) if layer.trainable else 0


def _left(layer: Any, schedule: Ahead, calls: Sequence[Any]) -> list[Gradients]:
    """Returns the gradients of a layer; all that was looked up must have them."""
    if len(schedule.gradients) != (len(calls) if layer.trainable else 0):
        raise ValueError(
            f"the loss does not depend on all outputs of {layer.name}, or other variables than the "
            "model's trainable ones are trained: a pipeline can't tell which updates will come. "
            "Set layer.trainable = False, or train without pipeline()."
        )
    return schedule.gradients

"""What a pipeline computes: graphs for ids, rows, a training step, and updates that are left."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

from trepak.horovod_ext import basics
from trepak.horovod_ext.alltoall import alltoall_async
from trepak.tf_plugins.layers.embedding_batches import (
    Answered,
    Asked,
    Gradients,
    Returned,
    Wanted,
)
from trepak.tf_plugins.layers.embedding_schedule import Ahead, AskedAhead, scheduled
from trepak.tf_plugins.model.distributed_models import synchronous_steps
from trepak.tf_plugins.model.look_ups import embedding_layers, look_ups

# The look-up of batch t sees at least the update of batch t - 3.
PERMITS = 3


def label_of(model: Any) -> str:
    """Returns how a model's alltoalls are called; its tables must have been made."""
    return str(embedding_layers(model)[0].tables.label)


class PipelineGraphs:
    """The functions of one model's pipeline; each is one graph, unless the model runs eagerly.

    Attributes:
        ask: sends a batch's ids; takes what `train_step` takes, and what readers have told.
        answer: looks up what all ranks have asked for a batch, and sends the rows.
        train: takes a batch's data, what `answer` or `ask` has returned of it, what was returned of
            the batch before, and what was asked for the next one. Returns logs, this batch's
            gradients under way, and the next one's rows under way.
        update: updates the rows of a batch whose gradients are under way.
        calls: by layer, how often a step calls it.
    """

    def __init__(self, model: Any, is_whole: bool) -> None:
        """Makes them of a compiled model; `is_whole`: of four stages, not of one."""
        self._model, self._is_whole = model, is_whole
        self.calls = [1] * len(embedding_layers(model))
        self.ask = self._function(self._asked)
        self.answer = self._function(self._answered)
        self.train = self._function(self._trained)
        self.update = self._function(self._updated)

    def _function(self, plain: Callable[..., Any]) -> Callable[..., Any]:
        return plain if self._model.run_eagerly else _for_any_rows(plain)

    def _asked(self, data: Any, wanted: Any = None) -> list[list[Asked | Wanted]]:
        model, layers = self._model, embedding_layers(self._model)
        calls = look_ups(model, data)
        self.calls = [len(one) for one in calls]
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
        told, _ = alltoall_async(zeros, name=f"{label_of(self._model)}: updated").wait()
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
    return PERMITS * len(calls) if layer.trainable else 0


def _left(layer: Any, schedule: Ahead, calls: Sequence[Any]) -> list[Gradients]:
    """Returns the gradients of a layer; all that was looked up must have them."""
    if len(schedule.gradients) != (len(calls) if layer.trainable else 0):
        raise ValueError(
            f"the loss does not depend on all outputs of {layer.name}, or other variables than the "
            "model's trainable ones are trained: a pipeline can't tell which updates will come. "
            "Set layer.trainable = False, or train without pipeline()."
        )
    return schedule.gradients

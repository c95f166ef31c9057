"""When a step does what of its look-ups: all of it in itself, or in part in the steps beside it."""

from __future__ import annotations

import contextlib
import weakref
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Protocol

import tensorflow as tf

from trepak.tf_plugins.layers.embedding_batches import Answered, Asked, Gradients, Wanted
from trepak.tf_plugins.layers.embedding_inputs import FeatureInput
from trepak.tf_plugins.layers.embedding_tables import EmbeddingTables


class Schedule(Protocol):
    """What a layer does when it is called."""

    def look_up(
        self, tables: EmbeddingTables, inputs: Sequence[FeatureInput], anchor: Any
    ) -> list[Any]:
        """Returns the combined rows of each feature: float32, [samples, columns]."""
        ...


class Exact:
    """A step asks for its rows, waits for them, and updates them in its gradient."""

    def look_up(
        self, tables: EmbeddingTables, inputs: Sequence[FeatureInput], anchor: Any
    ) -> list[Any]:
        """Returns the rows as all steps before have left them."""
        answered = tables.answer(tables.ask(inputs))
        return tables.combine(answered, inputs, anchor, _at_once(tables))


class Collecting:
    """Finds out what a layer would look up; the rows are zeros.

    Attributes:
        inputs: of each call of the layer.
    """

    def __init__(self) -> None:
        """Has seen no call yet."""
        self.inputs: list[Sequence[FeatureInput]] = []

    def look_up(
        self, tables: EmbeddingTables, inputs: Sequence[FeatureInput], anchor: Any
    ) -> list[Any]:
        """Keeps the inputs."""
        del anchor
        self.inputs.append(inputs)
        columns = [feature.columns for feature in tables.features]
        return [
            tf.zeros([tf.size(one.splits) - 1, width])
            for one, width in zip(inputs, columns, strict=True)
        ]


class Ahead:
    """The rows were asked for in a step before; the update is left to one that follows.

    Attributes:
        gradients: of each call of the layer, to be sent.
    """

    def __init__(self, answered: Sequence[Answered]) -> None:
        """Takes the look-ups of a batch, one for each call of the layer."""
        self._answered = list(answered)
        self.gradients: list[Gradients] = []

    def look_up(
        self, tables: EmbeddingTables, inputs: Sequence[FeatureInput], anchor: Any
    ) -> list[Any]:
        """Returns the rows as they were when they were looked up.

        Raises:
            RuntimeError: the layer is called more often in training than otherwise.
        """
        return tables.combine(_next(self._answered), inputs, anchor, self.gradients.append)


class AskedAhead:
    """Only the ids have travelled ahead, which changes no result."""

    def __init__(self, asked: Sequence[Asked | Wanted]) -> None:
        """Takes the ids of a batch, one for each call of the layer."""
        self._asked = list(asked)

    def look_up(
        self, tables: EmbeddingTables, inputs: Sequence[FeatureInput], anchor: Any
    ) -> list[Any]:
        """Returns the rows as all steps before have left them."""
        answered = tables.answer(_next(self._asked))
        return tables.combine(answered, inputs, anchor, _at_once(tables))


def _at_once(tables: EmbeddingTables) -> Callable[[Gradients], None]:
    # TensorFlow never forgets a gradient function that it has traced: it must not keep tables.
    traced = weakref.ref(tables)
    eager = tables if tf.executing_eagerly() else None

    def update(gradients: Gradients) -> None:
        there = eager or traced()
        if there is None:
            raise RuntimeError("a DistributedEmbedding is gone before its gradient was computed.")
        there.update(there.send_back(gradients))

    return update


def _next(calls: list[Any]) -> Any:
    if not calls:
        raise RuntimeError(
            "the model calls a DistributedEmbedding more often when it trains than when it "
            "predicts, so that its look-ups can't be made ahead: train it without pipeline()."
        )
    return calls.pop(0)


@contextlib.contextmanager
def scheduled(layers: Sequence[Any], schedules: Sequence[Schedule]) -> Iterator[None]:
    """Gives layers schedules for what is called, or traced, inside."""
    before = [layer.schedule for layer in layers]
    for layer, schedule in zip(layers, schedules, strict=True):
        layer.schedule = schedule
    try:
        yield
    finally:
        for layer, schedule in zip(layers, before, strict=True):
            layer.schedule = schedule

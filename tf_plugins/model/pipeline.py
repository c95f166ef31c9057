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
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import tensorflow as tf

from trepak.horovod_ext import basics
from trepak.horovod_ext.alltoall import Alltoall, alltoall_async
from trepak.tf_plugins.layers.embedding_batches import Answered, Asked, Read, Returned
from trepak.tf_plugins.model.flushing import flushing_methods
from trepak.tf_plugins.model.look_ups import embedding_layers
from trepak.tf_plugins.model.model_hooks import ModelHook, attach, detach
from trepak.tf_plugins.model.pipeline_graphs import PipelineGraphs, label_of

_NAME = "pipeline"
STAGES = (0, 1, 4)
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
        self._graphs = PipelineGraphs(model, self._is_whole)

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
            batch.answered = self._graphs.answer(batch.asked)
        returned, self._returned = self._returned, None
        logs, self._returned, answered = self._graphs.train(
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
            name=f"{label_of(self._model)}: batches at hand",
        )
        # Who has no more sends empty ids: the others wait for them.
        return _Batch(data, self._nothing() if data is None else self._graphs.ask(data), at_hand)

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
        return _Batch(data.batch, self._graphs.ask(data.batch, data.wanted), True)

    def flush(self) -> None:
        """Makes the updates that are left, as soon as all ranks' gradients are here."""
        returned, self._returned = self._returned, None
        if returned is not None:
            self._graphs.update(returned)

    def restart(self) -> None:
        """Begins anew: what was looked up and not trained is forgotten."""
        self.flush()
        self._window.clear()
        self._iterator, self._is_read = None, False
        for layer in embedding_layers(self._model):
            if layer.tables is not None:
                layer.tables.permits(reset=True)

    def _nothing(self) -> list[list[Asked]]:
        layers = zip(embedding_layers(self._model), self._graphs.calls, strict=True)
        return [[layer.tables.ask_nothing() for _ in range(calls)] for layer, calls in layers]

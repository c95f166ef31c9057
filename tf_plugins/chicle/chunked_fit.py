"""What acts in `fit` with chunks: it ends an iteration when ranks have averaged."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from typing import Any

import keras

from trepak.horovod_ext import basics
from trepak.tf_plugins.chicle.chunked_iterations import ChunkedIterations
from trepak.tf_plugins.model.distributed_models import (
    flush,
    is_distributed,
    optimizers_of,
)
from trepak.tf_plugins.model.fit_parts import added
from trepak.tf_plugins.model.model_hooks import ModelHook, attach, detach
from trepak.tf_plugins.sync.local_sgd import LocalSGDStep

_CLOCK = "clock"
_REFUSED = {
    "y": "give it to ChunkedDataset",
    "sample_weight": "give it to ChunkedDataset",
    "class_weight": "give ChunkedDataset a sample_weight",
    "batch_size": "give it to ChunkedDataset",
    "steps_per_epoch": "an epoch is a pass over all samples",
}


@contextlib.contextmanager
def fitting(
    iterations: ChunkedIterations, batch_size: int, model: Any, arguments: dict[str, Any]
) -> Iterator[None]:
    """Has a model's `fit` train in iterations, for the while of the block; a collective call.

    Args:
        iterations: between which chunks move.
        batch_size: samples of a step, divided by the number of tasks.
        model: that is to be trained.
        arguments: of `fit`; a callback is added.

    Raises:
        ValueError: on all ranks, where one can't train so.
    """
    cluster = iterations.cluster

    def check() -> tuple[LocalSGDStep | None, None]:
        for name, remedy in _REFUSED.items():
            if arguments.get(name) is not None:
                raise ValueError(f"fit can't take {name} with a ChunkedDataset: {remedy}.")
        if cluster.size != (basics.size() if basics.is_initialized() else 1):
            raise ValueError(
                f"the ChunkedDataset was made for {cluster.size} ranks, and now there are others: "
                "make it after trepak.init()."
            )
        averages = cluster.size > 1 or iterations.is_elastic  # there may be more ranks later
        return _averaging_step(model) if averages else None, None

    step, _ = cluster.together(check, "fit with a ChunkedDataset")
    callback = BetweenIterations(iterations, batch_size, step)
    attach(model, ModelHook(_CLOCK, train_function=callback.timed))
    try:
        with iterations.short_epochs(), added(arguments, callback, model):
            yield
    finally:
        detach(model, _CLOCK)
        iterations.batches.stop()


def _averaging_step(model: Any) -> LocalSGDStep:
    """Returns what averages a model of all ranks.

    Raises:
        ValueError: nothing does, or not so that chunks can move.
    """
    kept = [one._trepak for one in filter(is_distributed, optimizers_of(model))]
    steps = [one.step for one in kept]
    if len(steps) != 1 or not isinstance(steps[0], LocalSGDStep):
        raise ValueError(
            "chunks move when ranks average their models: compile with one optimizer, "
            "hvd.DistributedOptimizer(…, sync=trepak.LocalSGD(H=…))."
        )
    if kept[0].reducer.options.process_set.process_set_id != 0:
        raise ValueError("chunks move between all ranks: leave out process_set.")
    if kept[0].accumulator is not None:
        raise ValueError(
            "chunks move when ranks have averaged, which is after batches, not passes: leave out "
            "backward_passes_per_step, or give ChunkedDataset a larger batch_size."
        )
    if model.steps_per_execution != 1:
        raise ValueError(
            f"steps_per_execution={model.steps_per_execution} leaves no time for chunks to move "
            "between its steps: compile with 1."
        )
    return steps[0]


class BetweenIterations(keras.callbacks.Callback):
    """Ends an iteration after H steps, and at an epoch's end; `fit` with chunks makes its own."""

    def __init__(
        self, iterations: ChunkedIterations, batch_size: int, step: LocalSGDStep | None
    ) -> None:
        """Makes the callback.

        Args:
            iterations: between which chunks move.
            batch_size: samples of a step, divided by the number of tasks.
            step: what averages the model; None: an iteration is an epoch of a single process.
        """
        super().__init__()
        self._iterations, self._batch_size, self._step = iterations, batch_size, step
        # What this rank has computed in this iteration, and in how many seconds.
        self._samples, self._seconds = 0, 0.0

    def timed(self, model: Any, train_function: Callable[..., Any]) -> Callable[..., Any]:
        """Returns a train function whose own time counts, without that of averages.

        Its first call does not count: it traces.
        """
        batches = self._iterations.batches
        is_traced = False

        def train(iterator: Any) -> Any:
            nonlocal is_traced
            began, waited, taken = time.perf_counter(), self._waited(), batches.taken
            logs = train_function(iterator)
            if is_traced:
                self._seconds += time.perf_counter() - began - (self._waited() - waited)
                self._samples += batches.taken - taken
            is_traced = True
            return logs

        return train

    def on_train_begin(self, logs: Any = None) -> None:
        """Has ranks count the steps of an iteration from here."""
        flush(self.model)
        self._iterations.stops = False

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        """Begins a pass over all samples; before, other ranks may come."""
        self._iterations.between()
        self._begin(is_new=True)

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        """Ends the iteration, if it was its last batch: chunks move; a collective call.

        A callback that stops this rank does so then, and stops all.
        """
        batches = self._iterations.batches
        if self.model.stop_training and self._step is not None:  # others would wait for this rank
            self.model.stop_training, self._iterations.stops = False, True
        if batches.steps_left == 0:
            flush(self.model)
        to_average = self._steps_to_average()
        if batches.steps_left == 0 or (batches.batches_left == 0 and to_average == self._each):
            next_pass_of = self._iterations.steps(self._batch_size)
            seconds, averages = max(self._seconds, 0.0), self._averages() - self._averages_then
            self._iterations.end(self._samples, seconds, max(averages, 1), next_pass_of)
            self.model.stop_training |= self._iterations.stops
            # At an epoch's end callbacks have yet to hear of it.
            if batches.steps_left and not self._iterations.stops:
                self._iterations.between()
                self._begin()
        elif batches.batches_left < batches.steps_left and (
            (batches.batches_left - to_average) % self._each
        ):
            batches.extend(to_average)  # something else had ranks average: they count anew

    def _begin(self, is_new: bool = False) -> None:
        self._samples, self._seconds = 0, 0.0
        self._averages_then = self._averages()
        if is_new:
            self._iterations.begin_pass(self._batch_size)
        else:
            self._iterations.begin()
        self._each = self._steps_to_average()
        averages = 1 if self._step is None else self._iterations.averages
        self._iterations.batches.extend(averages * self._each)

    def _steps_to_average(self) -> int:
        if self._step is None:
            return self._iterations.batches.steps_left
        return self._step.steps_to_average

    def _averages(self) -> int:
        return 0 if self._step is None else self._step.averages

    def _waited(self) -> float:
        return 0.0 if self._step is None else self._step.waited

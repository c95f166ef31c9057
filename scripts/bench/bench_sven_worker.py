"""One rank of `trepak bench sven`: models of clicks whose computing is emulated.

Ids, rows and gradients are real and travel; so are the dense gradients. What a GPU would compute
takes its time and no CPU, see `emulated_compute`: pieces of a rank run one after the other.
"""

from __future__ import annotations

import functools
import gc
import statistics
import time
from collections.abc import Callable, Mapping
from typing import Any

import trepak
import trepak.keras as hvd  # before Keras: it keeps TensorFlow's start-up noise off the terminal

# isort: split
import keras
import tensorflow as tf

from trepak.horovod_ext import alltoall
from trepak.layers import DistributedEmbedding
from trepak.models.click_features import click_inputs, feature_configs, look_up
from trepak.models.clicks import ClickStream
from trepak.ops import emulated_compute
from trepak.scripts.bench import rank
from trepak.scripts.bench.memory_watch import MemoryWatch, allocated
from trepak.scripts.bench.sven_arithmetic import stream
from trepak.scripts.bench.sven_case import Case
from trepak.scripts.idle_watch import IdleWatch
from trepak.tf_plugins.layers.embedding_batches import Wanted

_BATCHES = 2  # that take turns: drawing them would take CPU
_WARM = 5  # steps in which all graphs are traced, and each batch's rows get their memory
_FILLING = 2  # steps until a pipeline is full
_RATE = 1e-3


class EmulatedDense(keras.layers.Layer):
    """The dense part: the time of its passes, and as many weights as gradients travel."""

    def __init__(self, weights: int, forward: float, backward: float) -> None:
        """Takes the number of weights, and seconds."""
        super().__init__(name="dense")
        self._size, self._times = weights, (1000 * forward, 1000 * backward)
        self.weight = self.add_weight((weights,), "zeros", name="weight")

    def call(self, x: Any, training: bool = False) -> Any:
        """Returns a logit for each sample: (B, columns) to (B, 1)."""
        x = x + tf.reduce_mean(self.weight)  # whose gradient comes when all of backward is done
        if training:  # a pipeline finds the ids by a call that trains nothing
            x = emulated_compute(x, *self._times, label="dense")
        return tf.reduce_mean(x, axis=-1, keepdims=True)


def measure(spec: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Returns a row for each case and pipeline: what this rank's steps took, by round."""
    clicks = stream()
    rounds, watches = spec["rounds"], spec["watches_memory"]
    return [row for case in spec["cases"] for row in _rows(case, clicks, rounds, watches)]


def _rows(case: Case, clicks: ClickStream, rounds: int, watches: bool) -> list[dict[str, Any]]:
    mine = _batches(case.batch, hvd.rank(), hvd.size())
    models = {one: _build(case, clicks) for one in case.pipelines}
    data = {}
    for one, model in models.items():
        trepak.pipeline(model, one.stages)
        data[one] = _read_ahead(model, case, one.readers) if one.readers else mine
        _fit(model, data[one], _WARM)
    orders = rank.rounds_of(case.pipelines, rounds)
    found = [
        (one, _fit(models[one], data[one], case.steps, watches))
        for order in orders
        for one in order
    ]
    for model in models.values():
        trepak.pipeline(model, 0)
    del model, models, data
    keras.backend.clear_session()
    gc.collect()
    held = alltoall.statistics()["most_bytes_held"]  # in any pipeline so far
    return [
        {
            "model": case.model,
            "stages": one.stages,
            "readers": one.readers,
            "rounds": [measured for of, measured in found if of == one],
            "held_bytes": held,
        }
        for one in case.pipelines
    ]


def _read_ahead(model: Any, case: Case, readers: int) -> Any:
    return trepak.read_ahead(model, functools.partial(_batches, case.batch), readers)


def _fit(model: Any, data: Any, steps: int, watches: bool = False) -> dict[str, float]:
    """Trains; returns what a clock has measured."""
    clock = _Clock(watches)
    model.fit(data, steps_per_epoch=_FILLING + steps, callbacks=[clock], verbose=0)
    return clock.measured()


class _Clock(keras.callbacks.Callback):
    """Measures the steps of a full pipeline; watching memory takes CPU from them."""

    def __init__(self, watches: bool) -> None:
        super().__init__()
        self._watches = watches
        self._ends: list[float] = []
        self._between: list[int] = []  # bytes that are allocated while no step is computed
        self._idle, self._memory = IdleWatch(), MemoryWatch()
        self._shares: dict[str, float] = {}
        self._sent = 0

    def on_train_begin(self, logs: Any = None) -> None:
        """Frees what nobody refers to: it would be taken for memory of steps."""
        if self._watches:
            gc.collect()

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        """Notes the time when the step's loss is there."""
        if batch + 1 == _FILLING:
            self._idle, self._sent = IdleWatch(), alltoall.statistics()["bytes_sent"]
            if self._watches:
                self._memory.start()
        if batch + 1 >= _FILLING:
            if self._watches:
                self._between.append(allocated())
            self._ends.append(time.perf_counter())
            self._shares = self._idle.shares()

    def on_train_end(self, logs: Any = None) -> None:
        """Notes what was sent and held, before the next fit begins."""
        if self._watches:
            self._memory.stop()
        self._sent = alltoall.statistics()["bytes_sent"] - self._sent

    def measured(self) -> dict[str, float]:
        """Returns seconds and sent bytes of a step, shares of the CPU, and memory if watched."""
        steps = len(self._ends) - 1
        found = {
            "step_s": (self._ends[-1] - self._ends[0]) / steps,
            "sent_bytes": self._sent / steps,
            **self._shares,
        }
        if self._watches:
            found["between_bytes"] = statistics.median(self._between)
            found["most_bytes"] = self._memory.most
        return found


def _build(case: Case, clicks: ClickStream) -> Any:
    configs = feature_configs(
        clicks.vocabularies,
        case.columns,
        case.batch,
        optimizer=keras.optimizers.SGD(_RATE),
    )
    for config in configs.values():
        config.table.initializer = "zeros"  # which take memory only where they are touched
    embedding = DistributedEmbedding(configs, sharding="row", tables_in_files=False)
    inputs = click_inputs(clicks.vocabularies, 0)
    (rows,) = look_up(embedding, inputs["categorical"])
    times = case.times
    # The device is busy as long if it updates before it reduces; TensorFlow runs emulated pieces in
    # program order, and would have the rows' update wait for the dense one.
    backward = times.backward + times.optimizer
    dense = EmulatedDense(case.allreduced_bytes // 4, times.forward, backward)
    model = keras.Model(inputs, dense(keras.ops.concatenate(rows, axis=-1)))
    model.compile(hvd.DistributedOptimizer(keras.optimizers.SGD(_RATE)), loss="mse")
    _emulate(embedding.tables, {"ids": times.look_up, "gradients": times.update})
    return model


def _emulate(tables: Any, seconds: Mapping[str, float]) -> None:
    """Has what follows an exchange take its time on the device: look-ups and updates.

    Ids that readers have told of come by no exchange.
    """
    receive: Callable[..., Any] = tables._receive
    answer: Callable[..., Any] = tables.answer

    def received(ticket: Any, dtype: Any, what: str) -> Any:
        values, splits = receive(ticket, dtype, what)
        if what in seconds:
            values = emulated_compute(values, 1000 * seconds[what], label=what)
        return values, splits

    def answered(asked: Any, permits: int = 0) -> Any:
        if isinstance(asked, Wanted):
            wanted = emulated_compute(asked.wanted, 1000 * seconds["ids"], label="ids")
            asked = asked._replace(wanted=wanted)
        return answer(asked, permits)

    tables._receive, tables.answer = received, answered


def _batches(batch: int, rank: int, size: int) -> Any:
    """Returns a rank's batches, without end; a reader makes those of all ranks."""
    drawn = stream().dataset(_BATCHES * size * batch, batch, rank=rank, size=size)
    only_ids = drawn.map(lambda inputs, labels: ({"categorical": inputs["categorical"]}, labels))
    return only_ids.cache().repeat()


if __name__ == "__main__":
    rank.main(measure)

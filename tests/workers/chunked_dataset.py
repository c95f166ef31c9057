"""Chunks that move between ranks which train a Keras model: each sample once, exact averages."""

from __future__ import annotations

import math
import re
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import keras
import numpy as np
import tensorflow as tf
from exactness import dense_model
from harness import case
from local_sgd import SGD, Task, average, check_close, joined, same
from rna import check_equal_on_all_ranks, expect, weights

import trepak
import trepak.keras as hvd
from trepak import chicle
from trepak.horovod_ext import exchange
from trepak.tf_plugins.chicle import chunked_iterations

# Else several averages would pass in an iteration of these models, which are quick.
chunked_iterations.SECONDS = 0.0
SAMPLES, BATCH, H, CHUNK = 528, 8, 4, 2000
NAP = 0.004  # seconds that a slow rank takes longer for each sample
Drawn = list[tuple[np.ndarray, np.ndarray]]


def samples() -> tuple[np.ndarray, np.ndarray]:
    """Returns all ranks' samples; the first target of each is its number, scaled."""
    rng = np.random.default_rng(5)
    x = rng.normal(size=(SAMPLES, 6)).astype("float32")
    y = x @ rng.normal(size=(6, 3)).astype("float32")
    y[:, 0] = np.arange(SAMPLES) / SAMPLES
    return x, y


def dataset(**options: Any) -> chicle.ChunkedDataset:
    """Returns the dataset of all ranks' samples; each has read as many as its number lets it."""
    x, y = samples()
    edges = [SAMPLES * rank**2 // hvd.size() ** 2 for rank in range(hvd.size() + 1)]
    mine = slice(*edges[hvd.rank() :][:2])
    made: dict[str, Any] = {"batch_size": BATCH, "chunk_bytes": CHUNK, **options}
    return chicle.ChunkedDataset(x[mine], y[mine], **made)


class Watch:
    """Notes what this rank draws, and what ranks take; and that no batch is at hand amid moves."""

    def __init__(self, data: chicle.ChunkedDataset, model: Any) -> None:
        self.drawn: Drawn = []
        self.averages: list[int] = []  # by move, how many there had been
        self.took: list[dict[int, float]] = []  # by iteration and task, seconds for a sample
        self._model = model
        iterations, batches, tasks = data.iterations, data.iterations.batches, data.tasks
        take, move, end = batches.take, tasks.move, iterations.end

        def noted() -> list[np.ndarray]:
            x, y = take()
            self.drawn.append((x, y))
            return [x, y]

        def checked(*moves: Any) -> None:
            assert batches.batches_left == 0, "a batch was drawn before chunks move"
            step = model.optimizer._trepak.step
            assert step.steps_to_average == H, "chunks move between averages"
            self.averages.append(step.averages)
            move(*moves)

        def ended(*done: Any) -> None:
            end(*done)
            assert iterations.last is not None
            measured = iterations.last.tasks.items()
            self.took.append({task: one.seconds / one.samples for task, one in measured})

        batches.take, tasks.move = noted, checked  # type: ignore[method-assign]
        iterations.end = ended  # type: ignore[method-assign]

    def check_epochs(self, steps: int, epochs: int) -> list[Drawn]:
        """Checks that each sample came once in an epoch; returns all ranks' batches."""
        everyone = trepak.allgather_object(self.drawn)
        assert {len(theirs) for theirs in everyone} == {steps * epochs}
        for epoch in range(epochs):
            parts = [one for theirs in everyone for one in theirs[epoch * steps :][:steps]]
            assert all(len(x) for x, _ in parts), "a batch is empty"
            numbers = np.rint(joined(parts)[1][:, 0] * SAMPLES).astype(int)
            assert sorted(numbers) == list(range(SAMPLES)), f"epoch {epoch}"
        return everyone


def in_one_process(everyone: list[Drawn], steps: int, optimizer: Callable[[float], Any]) -> Task:
    """Trains K tasks with the batches that K ranks have drawn; returns one of them."""
    tasks = [Task(same(dense_model), optimizer(math.sqrt(len(everyone)))) for _ in everyone]
    for number in range(len(everyone[0])):
        for task, drawn in zip(tasks, everyone, strict=True):
            task.step([drawn[number]])
        of_epoch = number % steps + 1
        if of_epoch % H == 0 or of_epoch == steps:
            average(tasks)
    return tasks[0]


def napping(model: Any, seconds: float) -> Any:
    """Has a model's training steps take longer, by so much for each sample."""

    def nap(x: np.ndarray) -> np.ndarray:
        time.sleep(seconds * len(x))
        return x

    def step(data: Any) -> Any:
        x, y = data
        shape = x.shape
        x = tf.numpy_function(nap, [x], x.dtype)
        x.set_shape(shape)
        return plain((x, y))

    plain = model.train_step
    if seconds:
        model.train_step = step
    return model


def fitted(
    data: chicle.ChunkedDataset, epochs: int, model: Any, callbacks: Any = (), **how: Any
) -> Any:
    optimizer = hvd.DistributedOptimizer(SGD(0.05, momentum=0.9), sync=trepak.LocalSGD(H=H))
    model.compile(optimizer, loss="mse", jit_compile=False, **how)
    return model.fit(data, epochs=epochs, callbacks=list(callbacks), verbose=0)


def usual() -> list[Any]:
    return [
        hvd.callbacks.BroadcastGlobalVariablesCallback(0),
        hvd.callbacks.MetricAverageCallback(),
    ]


@case
def chunks_leave_a_slow_rank() -> dict[str, Any]:
    """The last one; what all compute is what one process does with the same draws."""
    slow, epochs = hvd.size() - 1, 4
    data = dataset()
    before = data.tasks.ledger.count(data.tasks.ranks)
    model = napping(same(dense_model), NAP if hvd.rank() == slow else 0.0)
    watch, steps = Watch(data, model), len(data)
    assert steps == math.ceil(SAMPLES / (BATCH * hvd.size())) and steps % H, steps
    history = fitted(data, epochs, model, usual()).history
    after = data.tasks.ledger.count(data.tasks.ranks)
    assert after[slow] < 0.6 * before[slow], (before, after)
    counted = data.statistics()
    assert counted["chunks"] == after[hvd.rank()]
    assert counted["iterations"] == model.optimizer._trepak.step.averages
    assert counted["iterations"] == epochs * math.ceil(steps / H)
    assert counted["moved"] >= before[slow] - after[slow]
    assert len(set(watch.averages)) == len(watch.averages) > 1
    assert history["loss"][-1] < 0.5 * history["loss"][0], history
    check_equal_on_all_ranks(model)
    everyone = watch.check_epochs(steps, epochs)
    last = [len(theirs[-1][0]) for theirs in everyone]
    assert last[slow] < max(last), last
    # Who waits for a slow rank is not slow. The least of all iterations: a machine that stands
    # still makes some longer.
    took = {task: min(one[task] for one in watch.took) for task in watch.took[0]}
    assert all(2 * took[task] < took[slow] for task in took if task != slow), took
    task = in_one_process(everyone, steps, lambda f: SGD(0.05 * f, momentum=0.9))
    check_close(weights(model), weights(task.model))
    return {"before": before, "after": after, "seconds per sample": took}


@case
def iterations_that_are_short_have_several_averages() -> None:
    data, epochs = dataset(policies=[chicle.Shuffling()]), 6
    model = same(dense_model)
    watch, steps = Watch(data, model), len(data)
    chunked_iterations.SECONDS = 0.5
    try:
        fitted(data, epochs, model, usual())
    finally:
        chunked_iterations.SECONDS = 0.0
    averages = model.optimizer._trepak.step.averages
    assert averages == epochs * math.ceil(steps / H)
    assert epochs <= data.statistics()["iterations"] < averages
    check_equal_on_all_ranks(model)
    everyone = watch.check_epochs(steps, epochs)
    task = in_one_process(everyone, steps, lambda f: SGD(0.05 * f, momentum=0.9))
    check_close(weights(model), weights(task.model))


@case
def ranks_may_average_in_every_step() -> None:
    """With H = 1 each step is an iteration, in which samples weigh alike: that of one process."""
    data = dataset(policies=[chicle.Shuffling()])
    model = same(dense_model)
    drawn: Drawn = []
    take = data.iterations.batches.take

    def noted() -> list[np.ndarray]:
        x, y = take()
        drawn.append((x, y))
        return [x, y]

    data.iterations.batches.take = noted  # type: ignore[method-assign]
    sync = trepak.LocalSGD(H=1, scale_learning_rate=False)
    model.compile(hvd.DistributedOptimizer(SGD(0.05), sync=sync), loss="mse", jit_compile=False)
    model.fit(data, epochs=2, verbose=0)
    check_equal_on_all_ranks(model)
    assert data.statistics()["moved"] > 0
    task = Task(same(dense_model), SGD(0.05))
    for batches in zip(*trepak.allgather_object(drawn), strict=True):
        task.step(list(batches))
    check_close(weights(model), weights(task.model))


class Late(keras.Model):
    """Has no weights before its first batch, after which the broadcast callback averages."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = keras.Sequential([keras.layers.Dense(8), keras.layers.Dense(3)])

    def call(self, x: Any, training: bool = False) -> Any:
        return self.inner(x)


class Flushes(keras.callbacks.Callback):
    """Has ranks average amid an iteration."""

    def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
        if batch in (H + 2, 2 * H + 3):
            self.model.optimizer.flush()


@case
def an_iteration_that_is_averaged_in_its_midst_goes_on() -> None:
    """Ranks count their steps anew."""
    for make in (Late, lambda: same(dense_model)):
        data, epochs, model = dataset(policies=[chicle.Shuffling()]), 2, make()
        watch, steps = Watch(data, model), len(data)
        fitted(data, epochs, model, [*usual(), Flushes()])
        watch.check_epochs(steps, epochs)
        check_equal_on_all_ranks(model)
        assert len(watch.averages) > 2
        averages = model.optimizer._trepak.step.averages
        assert averages > data.statistics()["iterations"] > epochs, averages


class Stops(keras.callbacks.Callback):
    """Ends a training amid an iteration, on all ranks."""

    def __init__(self, by_error: bool) -> None:
        super().__init__()
        self.by_error = by_error

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        if batch == H + 1:
            if self.by_error:
                raise KeyError("enough")
            self.model.stop_training = True


@case
def trainings_follow_one_that_was_ended() -> None:
    """Without a callback that averages at the ends of epochs, too."""
    data, model = dataset(policies=[chicle.Shuffling()]), same(dense_model)
    watch, steps = Watch(data, model), len(data)
    for by_error in (False, True):
        try:
            fitted(data, 2, model, [Stops(by_error)])
        except KeyError:
            assert by_error
        watch.drawn.clear()
        fitted(data, 2, model)
        watch.check_epochs(steps, 2)
        check_equal_on_all_ranks(model)


class StopsAlone(keras.callbacks.Callback):
    """Ends a training amid an iteration, on the last rank: as TerminateOnNaN may."""

    def __init__(self) -> None:
        super().__init__()
        self.batches = 0

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        self.batches += 1
        if batch == H + 1 and hvd.rank() == hvd.size() - 1:
            self.model.stop_training = True


@case
def a_rank_that_stops_stops_all() -> None:
    """At the end of the iteration: else the others would wait for it."""
    data, model, stops = dataset(), same(dense_model), StopsAlone()
    assert len(data) > 2 * H
    fitted(data, 2, model, [stops])
    assert exchange.gather(stops.batches, "batches") == [2 * H] * hvd.size()
    check_equal_on_all_ranks(model)
    watch = Watch(data, model)
    fitted(data, 2, model)
    watch.check_epochs(len(data), 2)


@case
def ranks_must_give_the_same() -> None:
    """What is wrong on one rank is an error on all."""
    x, y = samples()
    last = hvd.rank() == hvd.size() - 1
    wrong: list[tuple[str, Callable[[], Any]]] = [
        ("differ in how many there are", lambda: chicle.ChunkedDataset(x, y[1:] if last else y)),
        ("samples = ", lambda: chicle.ChunkedDataset(x, y[:, 0] if last else y)),
        ("samples = ", lambda: chicle.ChunkedDataset({"a": x} if last else {"b": x}, y)),
        ("samples = ", lambda: chicle.ChunkedDataset(x, None if last else y)),
        ("batch_size = 32, rank", lambda: chicle.ChunkedDataset(x, y, batch_size=33 - (not last))),
        ("chunk_bytes = ", lambda: chicle.ChunkedDataset(x, y, chunk_bytes=9000 + last)),
        (
            f"1 chunks for {hvd.size()} ranks: give smaller",
            lambda: chicle.ChunkedDataset(x if last else x[:0], y if last else y[:0]),
        ),
    ]
    for message, make in wrong:
        expect(message, make)


@case
def what_can_not_train_so_is_an_error() -> None:
    data = dataset()
    local = trepak.LocalSGD(H=2)

    def fit(optimizer: Any, given: Any = None, **how: Any) -> Any:
        model = same(dense_model)
        model.compile(optimizer, loss="mse", jit_compile=False, **how)
        return model.fit(data, y=given, verbose=0)

    def local_sgd(**options: Any) -> Any:
        return hvd.DistributedOptimizer(SGD(0.1), sync=local, **options)

    last = hvd.rank() == hvd.size() - 1
    expect("sync=trepak.LocalSGD", lambda: fit(hvd.DistributedOptimizer(SGD(0.1))))
    expect("sync=trepak.LocalSGD", lambda: fit(SGD(0.1)))
    expect("sync=trepak.LocalSGD", lambda: fit(SGD(0.1) if last else local_sgd()))
    expect("steps_per_execution=2", lambda: fit(local_sgd(), steps_per_execution=2))
    expect("backward_passes_per_step", lambda: fit(local_sgd(backward_passes_per_step=2)))
    expect("fit can't take y", lambda: fit(local_sgd(), samples()[1] if last else None))
    fit(local_sgd())


@case
def the_training_of_the_page_runs() -> None:
    page = (Path(__file__).parents[2] / "docs" / "chicle.md").read_text()
    blocks = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    block = next(one for one in blocks if "ChunkedDataset" in one)
    x, y = samples()
    mine = slice(hvd.rank(), None, hvd.size())
    made = {"x": x[mine], "y": y[mine], "model": same(dense_model), "keras": keras, "loss": "mse"}
    made["print"] = lambda *_: None
    exec(block, made)
    assert made["data"].statistics()["iterations"] >= 10
    check_equal_on_all_ranks(made["model"])

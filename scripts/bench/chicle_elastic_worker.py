"""One rank of the elastic jobs of `trepak bench chicle`: it trains, and notes what happens when.

A note is what began and ended when, of one rank: "round" (until ranks come or go), "state" and
"data" as it begins, "iteration" (of Chicle, or a batch of Keras alone), and "solve" (a task's part
of it). "initialized" begins with the process, and ends when ranks have met for the first time.
"""

from __future__ import annotations

import contextlib
import functools
import json
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import psutil

import trepak.keras as hvd
from trepak.horovod_ext import membership
from trepak.scripts.bench import rank
from trepak.scripts.bench.chicle_elastic_job import CHICLE, NETWORK, PLAIN, Spec

# isort: split
import keras
import tensorflow as tf

_BATCH = 1000  # samples of a batch of Keras


class Notes:
    """What this rank writes down."""

    def __init__(self, folder: Path) -> None:
        self._file = folder / "notes"

    def add(self, what: str, begin: float, **about: Any) -> None:
        """Writes a note of what ends now."""
        note = {"what": what, "begin": begin, "end": time.time(), "host": membership.host()}
        with self._file.open("a") as file:  # one write: ranks share the file
            file.write(json.dumps({**note, "pid": os.getpid(), **about}) + "\n")

    @contextlib.contextmanager
    def of(self, what: str, **about: Any) -> Iterator[None]:
        """Notes a block, also one that fails."""
        begin = time.time()
        try:
            yield
        finally:
            self.add(what, begin, **about)

    def watch(self, owner: Any, method: str, what: str) -> None:
        """Notes each call of a method."""
        plain = getattr(owner, method)

        def noted(*args: Any, **kwargs: Any) -> Any:
            with self.of(what):
                return plain(*args, **kwargs)

        setattr(owner, method, noted)


def train_by_chicle(spec: Spec, notes: Notes) -> None:
    """Fits a support vector machine whose chunks move."""
    from trepak import chicle
    from trepak.glm import LinearSVC
    from trepak.tf_plugins.chicle.cocoa import CocoaSolver
    from trepak.tf_plugins.chicle.elastic_tasks import ElasticTasks
    from trepak.tf_plugins.chicle.elastic_training import ElasticTraining
    from trepak.tf_plugins.chicle.training import Training

    plain = CocoaSolver.solve

    def slow(self: Any, model: Any, iteration: Any) -> Any:
        about = {"task": self._task, "chunks": len(self.store.ids), "samples": self.store.samples}
        with notes.of("solve", iteration=iteration.number, tasks=iteration.tasks, **about):
            time.sleep(spec.pause + spec.sample_seconds * self.store.samples)
            return plain(self, model, iteration)

    CocoaSolver.solve = slow  # type: ignore[method-assign]
    notes.watch(ElasticTraining, "round", "round")
    notes.watch(ElasticTasks, "_fill", "data")
    notes.watch(ElasticTasks, "join", "state")
    notes.watch(Training, "iterate", "iteration")
    source = chicle.NpyFiles(spec.folder / "x.npy", spec.folder / "y.npy")
    model = LinearSVC(
        spec.c,
        loss="hinge",
        fit_intercept=False,
        tol=spec.tol,
        max_iter=10**6,
        chunk_bytes=spec.chunk_bytes,
        random_state=spec.seed,
    )
    _init(notes)
    model.fit(source)
    notes.add("done", time.time(), iterations=model.n_iter_, gap=model.duality_gap_)


class _Steps:
    """Notes the iterations of a network: from the first step's computing, which follows tracing."""

    def __init__(self, notes: Notes) -> None:
        self._notes = notes
        self.new_round()

    def new_round(self) -> None:
        """Hears that what comes next is traced first."""
        self._began: float | None = None
        self._steps = 0

    def step(self, samples: Any) -> None:
        """Hears that a step begins to compute, as it has its samples."""
        self._began = self._began or time.time()
        self._steps += 1

    def end(self, iterations: Any, plain: Callable[[], None]) -> None:
        """Notes an iteration, whose end is that of `plain`."""
        tasks = iterations.tasks
        ((task, store),) = tasks.stores.items()
        assert self._began is not None
        begin, steps = self._began, self._steps
        about = {"task": task, "chunks": len(store.ids), "samples": store.samples, "steps": steps}
        number, working = iterations.iterations, len(tasks.working)
        self._notes.add("solve", begin, iteration=number, tasks=working, **about)
        plain()
        self._notes.add("iteration", begin)
        self._began, self._steps = time.time(), 0


def train_network(spec: Spec, notes: Notes) -> None:
    """Trains the paper's network by local SGD, emulated, from chunks that move."""
    from trepak import LocalSGD, chicle
    from trepak.scripts.bench.chicle_emulated import network
    from trepak.tf_plugins.chicle.chunked_iterations import ChunkedIterations

    steps, plain = _Steps(notes), ChunkedIterations.end

    class Watched(keras.Sequential):
        def train_step(self, data: Any) -> Any:
            tf.numpy_function(steps.step, [data[0]], [])
            return super().train_step(data)

    def end(self: Any, *of_iteration: Any) -> None:
        steps.end(self, functools.partial(plain, self, *of_iteration))

    ChunkedIterations.end = end  # type: ignore[method-assign, assignment]
    model = Watched([keras.Input((1,)), network(1000 * spec.sample_seconds)])
    _init(notes)
    sync = LocalSGD(H=spec.steps)
    model.compile(
        hvd.DistributedOptimizer(keras.optimizers.SGD(1e-3), sync=sync), "mse", jit_compile=False
    )
    data = chicle.ChunkedDataset(
        chicle.NpyFiles(spec.folder / "x.npy", spec.folder / "y.npy"),
        batch_size=spec.batch,
        chunk_bytes=spec.chunk_bytes,
        seed=spec.seed,
    )
    state = hvd.elastic.KerasState(model, data=data, epoch=0)

    @hvd.elastic.run
    def train(state: Any) -> None:
        steps.new_round()
        with notes.of("round"):
            model.fit(
                data,
                initial_epoch=state.epoch,
                epochs=spec.epochs,
                verbose=0,
                callbacks=[
                    hvd.callbacks.BroadcastGlobalVariablesCallback(0),
                    hvd.elastic.UpdateEpochStateCallback(state),
                ],
            )

    train(state)
    notes.add("done", time.time())


class _Batches(keras.callbacks.Callback):
    def __init__(self, notes: Notes, pause: float) -> None:
        super().__init__()
        self._notes, self._pause = notes, pause
        self._begin = 0.0

    def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
        self._begin = time.time()

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        time.sleep(self._pause)
        self._notes.add("iteration", self._begin)


def train_plainly(spec: Spec, notes: Notes) -> None:
    """Trains a Keras model of as many weights, whose ranks read their samples anew."""
    x, y = (np.load(spec.folder / f"{name}.npy", mmap_mode="r") for name in "xy")
    model = keras.Sequential([keras.Input(x.shape[1:]), keras.layers.Dense(1, use_bias=False)])
    _init(notes)
    model.compile(hvd.DistributedOptimizer(keras.optimizers.SGD(1e-3)), loss="hinge")
    state = hvd.elastic.KerasState(model, batch=0, epoch=0)
    rounds: list[float] = []
    plain = state.sync

    def sync() -> None:
        rounds.append(time.time())
        with notes.of("state"):
            plain()

    state.sync = sync  # type: ignore[method-assign]

    @hvd.elastic.run
    def train(state: Any) -> None:
        try:
            with notes.of("data"):
                size = len(x)
                first, last = (size * part // hvd.size() for part in (hvd.rank(), hvd.rank() + 1))
                mine = np.array(x[first:last]), np.array(y[first:last])
            model.fit(
                *mine,
                batch_size=_BATCH,
                shuffle=False,
                initial_epoch=state.epoch,
                epochs=10**6,
                verbose=0,
                callbacks=[
                    hvd.callbacks.BroadcastGlobalVariablesCallback(0),
                    hvd.elastic.UpdateEpochStateCallback(state),
                    hvd.elastic.UpdateBatchStateCallback(state),
                    hvd.elastic.CommitStateCallback(state, batches_per_commit=1),
                    _Batches(notes, spec.pause),
                ],
            )
        finally:
            notes.add("round", rounds[-1])

    train(state)


def _init(notes: Notes) -> None:
    """Meets the other ranks, with all imports done, and notes when this process began."""
    imported = time.time()
    hvd.init()
    notes.add("initialized", psutil.Process().create_time(), imported=imported)


_TRAIN = {CHICLE: train_by_chicle, NETWORK: train_network, PLAIN: train_plainly}


def main() -> None:
    """Trains."""
    spec: Spec = rank.options().spec
    _TRAIN[spec.way](spec, Notes(spec.folder))


if __name__ == "__main__":
    main()

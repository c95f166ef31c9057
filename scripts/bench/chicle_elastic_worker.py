"""One rank of the elastic jobs of `trepak bench chicle`: it trains, and notes what happens when.

A note is what began and ended when, of one rank: "round" (until ranks come or go), "state" and
"data" as it begins, "iteration" (of Chicle, or a batch of Keras), and "solve" (a task's part of
it). "initialized" begins with the process, and ends when ranks have met for the first time.
"""

from __future__ import annotations

import contextlib
import json
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import psutil

import trepak.keras as hvd
from trepak.horovod_ext import membership
from trepak.scripts.bench import rank
from trepak.scripts.bench.chicle_elastic_job import CHICLE, Spec

# isort: split
import keras

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


def main() -> None:
    """Trains."""
    spec: Spec = rank.options().spec
    notes = Notes(spec.folder)
    (train_by_chicle if spec.way == CHICLE else train_plainly)(spec, notes)


if __name__ == "__main__":
    main()

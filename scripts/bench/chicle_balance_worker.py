"""One rank of the lab's part of `trepak bench chicle` whose ranks are of different speeds."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import trepak

# isort: split
import keras
import numpy as np
import tensorflow as tf

import trepak.keras as hvd
from trepak import chicle
from trepak.models.linear import higgs_shaped
from trepak.ops import emulated_compute
from trepak.scripts.bench import rank
from trepak.scripts.bench.chicle_balance import BALANCED, COCOA, LOCAL_SGD, PLAIN, Balancing
from trepak.scripts.bench.chicle_emulated import network, whole_chunks
from trepak.scripts.bench.chicle_lanes import LaneWatch
from trepak.tf_plugins.chicle.chunk_store import ChunkStore
from trepak.tf_plugins.chicle.cocoa import CocoaSolver, CocoaTrainer, Problem, Problems
from trepak.tf_plugins.chicle.drawing import DRAWN
from trepak.tf_plugins.chicle.policy import Policy
from trepak.tf_plugins.chicle.trainer import Iteration, IterationMetrics

# Of a chunk: 60 to 70 of them for each rank.
_COCOA_BYTES, _SGD_BYTES = 1 << 15, 1 << 11


class _Slowed(CocoaSolver):
    """Takes an emulated time for each sample, which the lab makes longer on slowed hosts."""

    milliseconds = 0.0

    def solve(
        self, model: Sequence[np.ndarray], iteration: Iteration
    ) -> tuple[list[np.ndarray], int]:
        update, count = super().solve(model, iteration)
        emulated_compute(tf.zeros([1]), self.milliseconds * count).numpy()
        return update, count


class _Trainer(CocoaTrainer):
    """CoCoA with such solvers, for a number of iterations."""

    def __init__(self, problems: Problems, milliseconds: float, iterations: int) -> None:
        super().__init__(problems, tol=0.0, max_iter=iterations)
        self._milliseconds = milliseconds

    def solver(self, task: int, store: ChunkStore) -> CocoaSolver:
        made = _Slowed(task, store, self._problems, self._seed)
        made.milliseconds = self._milliseconds
        return made

    def conclude(self, solvers: Sequence[Any], cluster: Any) -> None:
        """Does nothing: the gap is of no interest."""


def _cocoa(wanted: Balancing, iterations: int, policies: list[Policy]) -> list[dict[str, Any]]:
    cluster = chicle.cluster_of_job()
    count = wanted.samples // cluster.size
    x, y = higgs_shaped(count, seed=cluster.rank)
    problems = Problems((Problem("hinge", c=100 / wanted.samples, positive=1.0),), x.shape[1])
    fields = {"x": x, "y": y.astype(np.float64), "weight": np.ones(count)}
    samples = whole_chunks(fields, problems.state(), _COCOA_BYTES)
    cutting = chicle.Cutting(samples, problems.state(), _COCOA_BYTES)
    trainer = _Trainer(problems, wanted.milliseconds, iterations)
    tasks = chicle.place(cutting, cluster.size, cluster)
    with chicle.Training(trainer, tasks, cluster, policies) as training:
        trepak.barrier()
        watch = LaneWatch(time.perf_counter())

        def after(metrics: IterationMetrics) -> None:
            watch.ended(time.perf_counter(), metrics.tasks)

        training.run(after)
    return watch.iterations


class _Watching(keras.callbacks.Callback):
    """Notes when an iteration of chunks has ended: as the first batch after it begins."""

    def __init__(self, data: chicle.ChunkedDataset) -> None:
        super().__init__()
        self._data, self._seen = data, 0
        self.watch: LaneWatch | None = None

    def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
        now, done = time.perf_counter(), self._data.iterations
        if self.watch is None:
            self.watch = LaneWatch(now)
        if done.iterations > self._seen and done.last is not None:
            self._seen = done.iterations
            self.watch.ended(now, done.last.tasks)


def _local_sgd(wanted: Balancing, iterations: int, policies: list[Policy]) -> list[dict[str, Any]]:
    size = trepak.size()
    of_step = wanted.samples // (wanted.steps * size)
    # One epoch, whose end is that of another iteration.
    count = (iterations + 1) * wanted.steps * of_step
    x = np.random.default_rng(trepak.rank()).standard_normal((count, 1), np.float32)
    samples = whole_chunks({"x": x, "y": x}, [DRAWN], _SGD_BYTES)
    data = chicle.ChunkedDataset(
        samples["x"], samples["y"], batch_size=of_step, chunk_bytes=_SGD_BYTES, policies=policies
    )
    model = network(wanted.milliseconds)
    sync = trepak.LocalSGD(H=wanted.steps)
    model.compile(hvd.DistributedOptimizer(keras.optimizers.SGD(1e-3), sync=sync), "mse")
    watching = _Watching(data)
    broadcast = hvd.callbacks.BroadcastGlobalVariablesCallback(0)
    model.fit(data, epochs=1, verbose=0, callbacks=[broadcast, watching])
    assert watching.watch is not None
    return watching.watch.iterations[:iterations]


_TRAIN = {COCOA: _cocoa, LOCAL_SGD: _local_sgd}


def measure(trainings: Sequence[Balancing]) -> list[dict[str, Any]]:
    """Returns for each training, by policy, the iterations of `LaneWatch`."""
    return [
        {
            PLAIN: _TRAIN[one.training](one, one.plain, []),
            BALANCED: _TRAIN[one.training](one, one.settled + one.counted, [chicle.Rebalancing()]),
        }
        for one in trainings
    ]


if __name__ == "__main__":
    rank.main(measure)

"""One rank of the lab's part of `trepak bench chicle` that times iterations of CoCoA."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from typing import Any

import trepak

# isort: split
import numpy as np
from scipy import sparse

from trepak import chicle
from trepak.scripts.bench import rank
from trepak.scripts.bench.chicle_cases import CASES, Case
from trepak.scripts.bench.chicle_speedup import Speedup
from trepak.tf_plugins.chicle.cluster import Cluster, OneProcess
from trepak.tf_plugins.chicle.cocoa import CocoaTrainer, Problem, Problems
from trepak.tf_plugins.chicle.trainer import IterationMetrics


class _Trainer(CocoaTrainer):
    """CoCoA for a number of iterations."""

    def conclude(self, solvers: Sequence[Any], cluster: Cluster) -> None:
        """Does nothing: the gap is of no interest."""


def measure(wanted: Speedup) -> list[dict[str, Any]]:
    """Returns for each data set the median seconds of iterations and their parts."""
    return [
        _of_case(next(case for case in CASES if case.name == name), samples, wanted)
        for name, samples in wanted.samples.items()
    ]


def _of_case(case: Case, samples: int, wanted: Speedup) -> dict[str, Any]:
    size = trepak.size()
    c = 1 / (case.regularization * samples)
    alone = (0.0, 0.0)
    mine: Any = None
    for part in range(size) if trepak.rank() == 0 else [trepak.rank()]:
        made = case.make(samples // size, part)
        mine = made if mine is None else _joined(mine, made)
    if trepak.rank() == 0:
        alone = _iterate(mine, c, wanted.iterations, OneProcess())
        mine = mine[0][: samples // size], mine[1][: samples // size]
    trepak.barrier()
    cluster = chicle.cluster_of_job()
    together = _iterate(mine, c, wanted.iterations, cluster)
    weights, objectives = np.zeros((1, mine[0].shape[1])), np.zeros((1, 2))
    return {
        "data_set": case.name,
        "samples": samples,
        "bytes": weights.nbytes,
        "alone": alone[0],
        "solve_alone": alone[1],
        "together": together[0],
        "slowest": together[1],
        "gather": _timed(wanted.exchanges, lambda: cluster.gather(["a report"], "a timing")),
        "sum": _timed(wanted.exchanges, lambda: cluster.sum([weights, objectives])),
    }


def _joined(some: tuple[Any, np.ndarray], more: tuple[Any, np.ndarray]) -> tuple[Any, np.ndarray]:
    stack = sparse.vstack if hasattr(some[0], "tocsr") else np.concatenate
    return stack([some[0], more[0]]), np.concatenate([some[1], more[1]])


def _iterate(
    samples: tuple[Any, np.ndarray], c: float, iterations: int, cluster: Cluster
) -> tuple[float, float]:
    """Returns the median seconds of an iteration, and those of its slowest task."""
    x, y = samples
    problems = Problems((Problem("hinge", c, positive=1.0),), x.shape[1])
    fields = {"x": x, "y": y.astype(np.float64), "weight": np.ones(len(y))}
    tasks = chicle.place(chicle.Cutting(fields, problems.state()), cluster.size, cluster)
    trainer = _Trainer(problems, tol=0.0, max_iter=iterations + 1)
    lasted, slowest = [], []
    with chicle.Training(trainer, tasks, cluster) as training:
        began = time.perf_counter()

        def after(metrics: IterationMetrics) -> None:
            nonlocal began
            lasted.append(time.perf_counter() - began)
            slowest.append(max(done.seconds for done in metrics.tasks.values()))
            began = time.perf_counter()

        training.run(after)
    return statistics.median(lasted[1:]), statistics.median(slowest[1:])


def _timed(times: int, call: Callable[[], Any]) -> float:
    """Returns the median seconds of what all ranks do together."""
    trepak.barrier()
    took = []
    for _ in range(times):
        began = time.perf_counter()
        call()
        took.append(time.perf_counter() - began)
    return statistics.median(took)


if __name__ == "__main__":
    rank.main(measure)

"""Fits linear models to samples that all ranks of a job have, each its own part."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from trepak.tf_plugins.chicle.cluster import Cluster
from trepak.tf_plugins.chicle.cocoa import CocoaTrainer, Problem, Problems
from trepak.tf_plugins.chicle.cutting import Cutting
from trepak.tf_plugins.chicle.moving import Tasks
from trepak.tf_plugins.chicle.placing import place
from trepak.tf_plugins.chicle.trainer import IterationMetrics
from trepak.tf_plugins.chicle.training import Training


@dataclass(frozen=True)
class Samples:
    """A rank's part of the samples.

    Attributes:
        x: [samples, features], of float32 or float64: an array, or a SciPy sparse matrix.
        y: of float64: numbers, or classes by their places.
        weight: of each sample's loss.
    """

    x: Any
    y: np.ndarray
    weight: np.ndarray

    def fields(self) -> dict[str, Any]:
        """Returns what chunks are cut from."""
        return {"x": self.x, "y": self.y, "weight": self.weight}


@dataclass(frozen=True)
class Means:
    """Weighted means over the samples of all ranks.

    Attributes:
        x: by feature.
        y: of the targets.
    """

    x: np.ndarray
    y: float


@dataclass(frozen=True)
class Fitted:
    """What a training has come to.

    Attributes:
        weights: by model, those of features and the bias.
        iterations: how many there were.
        gap: the relative duality gap of the worst model at these weights.
        has_converged: whether it is small enough.
    """

    weights: np.ndarray
    iterations: int
    gap: float
    has_converged: bool


@dataclass(frozen=True)
class Way:
    """How to train.

    Attributes:
        tol: the relative duality gap at which training ends.
        max_iter: iterations after which it ends anyway.
        seed: what all draws depend on.
        chunk_bytes: of a chunk, at most.
        tasks: of a job of one process: how many threads, each with its own part of the samples.
        show: is called after each iteration.
    """

    tol: float
    max_iter: int
    seed: int
    chunk_bytes: int
    tasks: int
    show: Callable[[IterationMetrics], Any] | None


def means(samples: Samples, cluster: Cluster) -> Means:
    """Returns the means over all ranks' samples; a collective call."""
    weighted = samples.x.T @ samples.weight
    total, x, y = cluster.sum(
        [
            np.asarray([samples.weight.sum()]),
            np.asarray(weighted, np.float64),
            np.asarray([samples.y @ samples.weight]),
        ]
    )
    return Means(x / total, float(y[0] / total[0]))


def fit(
    samples: Samples,
    problems: Sequence[Problem],
    center: np.ndarray | None,
    way: Way,
    cluster: Cluster,
) -> Fitted:
    """Returns the models that fit the samples of all ranks; a collective call.

    Args:
        samples: this rank's.
        problems: the models.
        center: is subtracted from each sample.
        way: how to train.
        cluster: the ranks.

    Raises:
        HorovodInternalError: another rank has died or left.
    """
    none = np.zeros(0)
    models = Problems(tuple(problems), samples.x.shape[1], none if center is None else center)
    trainer = CocoaTrainer(models, way.tol, way.max_iter, way.seed)

    def cut() -> tuple[Cutting, None]:
        return Cutting(samples.fields(), models.state(), way.chunk_bytes), None

    cutting, _ = cluster.together(cut, "how samples are cut")
    count = way.tasks if cluster.size == 1 else cluster.size
    tasks = place(cutting, count, cluster, way.seed)
    with Training(trainer, tasks, cluster) as training:
        while trainer.model() is not None:
            training.run(way.show)
            # The iteration that follows a small gap may have made it larger.
            trainer.gaps[-1] = _evaluated_anew(trainer, tasks, cluster)
    return Fitted(trainer.weights, trainer.iterations, trainer.gaps[-1], trainer.has_converged)


def _evaluated_anew(trainer: CocoaTrainer, tasks: Tasks, cluster: Cluster) -> float:
    """Computes w from the duals, so that no error of rounding is left in it; returns the gap."""
    solvers = [trainer.solver(task, store) for task, store in tasks.stores.items() if store.ids]
    zeros = trainer.no_update()
    parts = [solver.evaluate(trainer.weights, anew=True)[1] for solver in solvers]
    (trainer.weights,) = cluster.sum([sum(parts, zeros[0])])
    parts = [solver.evaluate(trainer.weights)[0] for solver in solvers]
    (objectives,) = cluster.sum([sum(parts, zeros[1])])
    return trainer.judge(objectives)[1]

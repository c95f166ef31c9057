"""Fits linear models to samples that all ranks of a job have, each its own part."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from trepak.tf_plugins.chicle.cluster import Arrays, Cluster, cluster_of_job
from trepak.tf_plugins.chicle.elastic_scaling import ElasticScaling
from trepak.tf_plugins.chicle.glm_progress import progress
from trepak.tf_plugins.chicle.glm_trainer import GlmTrainer, LinearTask, Samples
from trepak.tf_plugins.chicle.horovod_rounds import is_elastic, train
from trepak.tf_plugins.chicle.rebalancing import Rebalancing


@dataclass(frozen=True)
class Fitted:
    """What a training has come to.

    Attributes:
        weights: by model, those of features and the bias.
        iterations: how many there were.
        gap: the relative duality gap of the worst model at these weights.
        has_converged: whether it is small enough.
        facts: what was found out of the samples.
    """

    weights: np.ndarray
    iterations: int
    gap: float
    has_converged: bool
    facts: Arrays


def fit(model: Any, task: LinearTask, seed: int) -> Fitted:
    """Returns the models that fit the samples of all ranks; a collective call.

    Args:
        model: the estimator, with its parameters.
        task: its kind.
        seed: what all draws depend on; rank 0's counts.

    Raises:
        ValueError: something is wrong on this rank, or another.
        HorovodInternalError: another rank has died or left, in a job that is not elastic.
        SystemExit: this rank has left an elastic job.
    """
    trainer = GlmTrainer(model, task, seed)
    with progress(model) as show:
        policies = (ElasticScaling(seed), Rebalancing(seed=seed)) if is_elastic() else ()
        tasks = model.tasks if cluster_of_job().size == 1 else None
        kept = model.commit_seconds, model.replicas
        train(trainer, trainer.cut, policies, seed, tasks, *kept, after=show)
    cocoa = trainer.cocoa
    return Fitted(
        cocoa.weights, cocoa.iterations, cocoa.gaps[-1], cocoa.has_converged, trainer.facts
    )


@dataclass(frozen=True)
class Means:
    """Weighted means over the samples of all ranks.

    Attributes:
        x: by feature.
        y: of the targets.
    """

    x: np.ndarray
    y: float


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

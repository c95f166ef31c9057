"""Fits linear models to samples that all ranks of a job have, each its own part."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from sklearn.utils import check_random_state

from trepak.tf_plugins.chicle.cluster import Arrays, Cluster, cluster_of_job
from trepak.tf_plugins.chicle.elastic_scaling import ElasticScaling
from trepak.tf_plugins.chicle.elastic_training import ElasticTraining
from trepak.tf_plugins.chicle.glm_progress import progress
from trepak.tf_plugins.chicle.glm_trainer import GlmTrainer, LinearTask, Samples
from trepak.tf_plugins.chicle.horovod_rounds import HorovodHosts, is_elastic, train
from trepak.tf_plugins.chicle.placing import place
from trepak.tf_plugins.chicle.rebalancing import Rebalancing
from trepak.tf_plugins.chicle.training import Training


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


def fit(model: Any, task: LinearTask) -> Fitted:
    """Returns the models that fit the samples of all ranks; a collective call.

    Args:
        model: the estimator, with its parameters.
        task: its kind.

    Raises:
        ValueError: something is wrong on this rank, or another.
        HorovodInternalError: another rank has died or left, in a job that is not elastic.
        SystemExit: this rank has left an elastic job.
    """
    seed = int(check_random_state(model.random_state).randint(2**31))
    trainer = GlmTrainer(model, task, seed)
    with progress(model) as show:
        if is_elastic():
            policies = (ElasticScaling(seed), Rebalancing(seed=seed))
            hosts = HorovodHosts()
            train(ElasticTraining(trainer, trainer.cut, hosts, policies, seed), hosts, show)
        else:
            _train(trainer, model.tasks, cluster_of_job(), show)
    cocoa = trainer.cocoa
    return Fitted(
        cocoa.weights, cocoa.iterations, cocoa.gaps[-1], cocoa.has_converged, trainer.facts
    )


def _train(trainer: GlmTrainer, tasks: int, cluster: Cluster, show: Any) -> None:
    trainer.begin(cluster)
    cutting, _ = cluster.together(
        lambda: (trainer.cut(cluster.rank, cluster.size), None), "how samples are cut"
    )
    count = tasks if cluster.size == 1 else cluster.size
    placed = place(cutting, count, cluster, int(trainer.facts["seed"]))
    with Training(trainer, placed, cluster) as training:
        training.run(show)


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

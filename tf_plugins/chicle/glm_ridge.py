"""Ridge regression with scikit-learn's interface, which all ranks of a job fit together."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
from sklearn.base import RegressorMixin

from trepak.tf_plugins.chicle.cluster import Arrays, Cluster
from trepak.tf_plugins.chicle.cocoa import Problem, Problems
from trepak.tf_plugins.chicle.cutting import CHUNK_BYTES
from trepak.tf_plugins.chicle.glm_fitting import Fitted, Means, means
from trepak.tf_plugins.chicle.glm_model import Given, LinearModel
from trepak.tf_plugins.chicle.glm_trainer import LinearTask, Samples


class Ridge(RegressorMixin, LinearModel):
    """Ridge regression: ‖y − Xw‖² + alpha ‖w‖², without a penalty for the intercept."""

    def __init__(
        self,
        alpha: float = 1.0,
        *,
        fit_intercept: bool = True,
        tol: float = 1e-4,
        max_iter: int = 1000,
        random_state: Any = None,
        chunk_bytes: int = CHUNK_BYTES,
        tasks: int = 1,
        commit_seconds: float = 10.0,
        replicas: bool = False,
        verbose: int = 0,
    ) -> None:
        """Makes one to be fitted.

        Args:
            alpha: the penalty.
            fit_intercept: whether there is an intercept; samples are centered for it, sparse ones
                without becoming dense.
            tol: see `LinearSVC`, as all that follow.
            max_iter: see there.
            random_state: see there.
            chunk_bytes: see there.
            tasks: see there.
            commit_seconds: see there.
            replicas: see there.
            verbose: see there.
        """
        self.alpha = alpha
        self.fit_intercept = fit_intercept
        how = chunk_bytes, tasks, commit_seconds, replicas, verbose
        super().__init__(tol, max_iter, random_state, *how)

    def _task(self, given: Given) -> LinearTask:
        return _Ridge(given, self.alpha, self.fit_intercept)

    def _take(self, fitted: Fitted) -> None:
        self.coef_ = fitted.weights[0]
        x, y = fitted.facts["center"], float(fitted.facts["target_center"])
        self.intercept_ = y - x @ self.coef_ if self.fit_intercept else 0.0

    def predict(self, X: Any) -> np.ndarray:  # noqa: N803
        """Returns the predictions for samples: [samples]."""
        scores: np.ndarray = self._score(X)
        return scores


class _Ridge(LinearTask):
    """Squared losses of centered samples."""

    def __init__(self, given: Given, alpha: float, centers: bool) -> None:
        self._given, self._alpha, self._centers = given, alpha, centers

    def read(self, part: int, parts: int) -> Samples:
        read = self._given.read(part, parts, np.shape, y_numeric=True)
        return dataclasses.replace(read, y=read.y.astype(np.float64))

    def described(self, mine: Samples, cluster: Cluster) -> Arrays:
        middle = means(mine, cluster) if self._centers else Means(np.zeros(0), 0.0)
        return {"center": middle.x, "target_center": np.asarray(middle.y)}

    def encoded(self, samples: Samples, facts: Arrays) -> Samples:
        return samples

    def problems(self, facts: Arrays) -> Problems:
        center = float(facts["target_center"])
        problem = Problem("squared", 1.0 / self._alpha, target_center=center)
        return Problems((problem,), int(facts["features"]), facts["center"])

"""Ridge regression with scikit-learn's interface, which all ranks of a job fit together."""

from __future__ import annotations

import dataclasses
from typing import Any, Self

import numpy as np
from sklearn.base import RegressorMixin

from trepak.tf_plugins.chicle.cluster import cluster_of_job
from trepak.tf_plugins.chicle.cocoa import Problem
from trepak.tf_plugins.chicle.cutting import CHUNK_BYTES
from trepak.tf_plugins.chicle.glm_fitting import Means, means
from trepak.tf_plugins.chicle.glm_model import LinearModel


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
            verbose: see there.
        """
        self.alpha = alpha
        self.fit_intercept = fit_intercept
        super().__init__(tol, max_iter, random_state, chunk_bytes, tasks, verbose)

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Self:  # noqa: N803
        """Fits the model to this rank's samples and those of all other ranks.

        Args:
            X: [samples, features], dense or sparse, of numbers; converted to float64 unless it is
                of float32.
            y: [samples], what is to be predicted.
            sample_weight: of each sample's loss; 1 by default.

        Returns:
            This, with the attributes `coef_`, `intercept_`, `n_iter_` and `duality_gap_`.

        Raises:
            ValueError: an argument or a parameter is wrong, on any rank, or not the same on all.
            HorovodInternalError: another rank has died or left.
        """
        cluster = cluster_of_job()
        read = self._agreed(X, y, sample_weight, cluster, np.shape, y_numeric=True)
        samples = dataclasses.replace(read, y=read.y.astype(np.float64))
        middle = means(samples, cluster) if self.fit_intercept else Means(np.zeros(0), 0.0)
        problem = Problem("squared", 1.0 / self.alpha, target_center=middle.y)
        center = middle.x if self.fit_intercept else None
        fitted = self._train(samples, [problem], center, cluster)
        self.coef_ = fitted.weights[0]
        self.intercept_ = middle.y - middle.x @ self.coef_ if self.fit_intercept else 0.0
        return self

    def predict(self, X: Any) -> np.ndarray:  # noqa: N803
        """Returns the predictions for samples: [samples]."""
        scores: np.ndarray = self._score(X)
        return scores

"""What the linear models share: scikit-learn's interface, and the training by all ranks."""

from __future__ import annotations

import numbers
import warnings
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import check_random_state
from sklearn.utils.validation import _check_sample_weight, check_is_fitted, validate_data

from trepak.tf_plugins.chicle.cluster import Cluster
from trepak.tf_plugins.chicle.cocoa import Problem
from trepak.tf_plugins.chicle.glm_agreement import agree
from trepak.tf_plugins.chicle.glm_fitting import Fitted, Samples, Way, fit
from trepak.tf_plugins.chicle.glm_progress import progress

_DTYPES = [np.float64, np.float32]


class LinearModel(BaseEstimator):
    """What the estimators share: checks of what they are given, and the training."""

    def __init__(
        self,
        tol: float,
        max_iter: int,
        random_state: Any,
        chunk_bytes: int,
        tasks: int,
        verbose: int,
    ) -> None:
        """Keeps what all estimators are given; see `LinearSVC`."""
        self.tol = tol
        self.max_iter = max_iter
        self.random_state = random_state
        self.chunk_bytes = chunk_bytes
        self.tasks = tasks
        self.verbose = verbose

    def _agreed(
        self, x: Any, y: Any, sample_weight: Any, cluster: Cluster, check: Any, **checks: Any
    ) -> Samples:
        """Returns this rank's samples, once all ranks have checked theirs."""

        def read() -> Samples:
            check_parameters(self)
            options = {"accept_sparse": "csr", "dtype": _DTYPES, "accept_large_sparse": False}
            if cluster.size > 1:  # some rank may have nothing to read
                options["ensure_min_samples"] = 0
            rows, targets = validate_data(self, x, y, **options, **checks)
            if rows.shape[0] == 0:
                return Samples(rows, targets, np.zeros(0))
            check(targets)
            weight = _check_sample_weight(
                sample_weight, rows, dtype=np.float64, ensure_non_negative=True
            )
            return Samples(rows, targets, weight)

        return agree(self, read, cluster)

    def _train(
        self, samples: Samples, problems: list[Problem], center: Any, cluster: Cluster
    ) -> Fitted:
        seed = int(check_random_state(self.random_state).randint(2**31))
        if cluster.size > 1:
            seed = cluster.gather(seed, "the seed")[0]
        with progress(self, cluster) as show:
            way = Way(self.tol, self.max_iter, seed, self.chunk_bytes, self.tasks, show)
            fitted = fit(samples, problems, center, way, cluster)
        self.n_iter_, self.duality_gap_ = fitted.iterations, fitted.gap
        if not fitted.has_converged:
            warnings.warn(
                f"{type(self).__name__} came to a relative duality gap of {fitted.gap:.2e} in "
                f"{fitted.iterations} iterations; tol is {self.tol}. Raise max_iter or tol, or "
                "scale the features.",
                ConvergenceWarning,
                stacklevel=3,
            )
        return fitted

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags

    def _score(self, x: Any) -> Any:
        """Returns what the model says of samples: [samples], or [samples, models]."""
        check_is_fitted(self)
        x = validate_data(self, x, accept_sparse="csr", dtype=_DTYPES, reset=False)
        return np.asarray(x @ self.coef_.T) + self.intercept_


def check_parameters(model: Any) -> None:
    """Raises ValueError or TypeError for parameters that are out of range, or of another type."""
    numbers_ = ["C", "alpha", "tol", *["intercept_scaling"] * getattr(model, "fit_intercept", 0)]
    wanted: dict[str, Any] = dict.fromkeys(numbers_, numbers.Real)
    wanted |= dict.fromkeys(("max_iter", "tasks", "chunk_bytes"), numbers.Integral)
    for name, kind in wanted.items():
        value: Any = getattr(model, name, 1)
        if not isinstance(value, kind) or isinstance(value, bool):
            what = "a whole number" if kind is numbers.Integral else "a number"
            raise TypeError(f"{name} must be {what}, got {value!r}.")
        if not 0 < value < np.inf:
            raise ValueError(f"{name} must be above 0 and finite, got {value!r}.")

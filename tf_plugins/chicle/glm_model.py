"""What the linear models share: scikit-learn's interface, and the training by all ranks."""

from __future__ import annotations

import abc
import numbers
import warnings
from typing import Any, Self

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import check_random_state
from sklearn.utils.validation import _check_sample_weight, check_is_fitted, validate_data

from trepak.tf_plugins.chicle.commit_options import check_commits
from trepak.tf_plugins.chicle.glm_fitting import Fitted, fit
from trepak.tf_plugins.chicle.glm_trainer import LinearTask, Samples
from trepak.tf_plugins.chicle.horovod_rounds import is_elastic
from trepak.tf_plugins.chicle.sources import Source

_DTYPES = [np.float64, np.float32]


class Given:
    """What `fit` was given: this rank's samples, or a source of all."""

    def __init__(self, model: Any, x: Any, y: Any, sample_weight: Any) -> None:
        """Keeps it.

        Args:
            model: the estimator; it is told of its features as samples are checked.
            x: see `LinearModel.fit`.
            y: see there.
            sample_weight: see there.

        Raises:
            ValueError: the job is elastic, and there is no source.
        """
        self._model, self._source = model, x if isinstance(x, Source) else None
        self._arrays = x, y, sample_weight
        if self._source is None and is_elastic():
            raise ValueError(
                "ranks of an elastic job must be able to read any samples: give fit a source, e.g. "
                "trepak.chicle.Arrays(x, y) of all samples, or trepak.chicle.LibsvmFile(path, …)."
            )
        if self._source is not None and (y is not None or sample_weight is not None):
            raise ValueError("a source has targets and weights, too: leave y and sample_weight.")

    def read(self, part: int, parts: int, check: Any, **checks: Any) -> Samples:
        """Returns samples that were checked.

        Args:
            part: of a source, which.
            parts: how many of them there are.
            check: is called with the targets.
            checks: of scikit-learn's `validate_data`.

        Raises:
            ValueError: samples, targets, weights or parameters are wrong, or there are no targets.
        """
        check_parameters(self._model)
        x, y, sample_weight = self._arrays
        if self._source is not None:
            x, y, sample_weight = self._source.samples(part, parts)
            if y is None:
                raise ValueError(
                    f"{type(self._source).__name__} gives samples without targets: a linear model "
                    "needs a source of both, e.g. trepak.chicle.Arrays(x, y)."
                )
        options = {"accept_sparse": "csr", "dtype": _DTYPES, "accept_large_sparse": False}
        if parts > 1:  # some rank may have nothing to read
            options["ensure_min_samples"] = 0
        rows, targets = validate_data(self._model, x, y, **options, **checks)
        if rows.shape[0] == 0:
            return Samples(rows, targets, np.zeros(0))
        check(targets)
        weight = _check_sample_weight(
            sample_weight, rows, dtype=np.float64, ensure_non_negative=True
        )
        return Samples(rows, targets, weight)


class LinearModel(BaseEstimator, abc.ABC):
    """What the estimators share: checks of what they are given, and the training."""

    def __init__(
        self,
        tol: float,
        max_iter: int,
        random_state: Any,
        chunk_bytes: int,
        tasks: int,
        commit_seconds: float,
        replicas: bool,
        verbose: int,
    ) -> None:
        """Keeps what all estimators are given; see `LinearSVC`."""
        self.tol = tol
        self.max_iter = max_iter
        self.random_state = random_state
        self.chunk_bytes = chunk_bytes
        self.tasks = tasks
        self.commit_seconds = commit_seconds
        self.replicas = replicas
        self.verbose = verbose

    def fit(self, X: Any, y: Any = None, sample_weight: Any = None) -> Self:  # noqa: N803
        """Fits the model to this rank's samples and those of all other ranks.

        Args:
            X: [samples, features], dense or sparse, of numbers; converted to float64 unless it is
                of float32. Or a `trepak.chicle.Source` of samples, targets and perhaps weights, of
                which each rank reads its part; an elastic job needs one.
            y: [samples], their classes, or what is to be predicted; None with a source.
            sample_weight: of each sample's loss; 1 by default.

        Returns:
            This, with the attributes `coef_`, `intercept_`, `n_iter_` and `duality_gap_`, and
            `classes_` of a classifier.

        Raises:
            ValueError: an argument or a parameter is wrong, on any rank, or not the same on all.
            HorovodInternalError: another rank has died or left, in a job that is not elastic.
            SystemExit: this rank has left an elastic job.
        """
        seed = int(check_random_state(self.random_state).randint(2**31))
        fitted = fit(self, self._task(Given(self, X, y, sample_weight)), seed)
        self.n_features_in_ = int(fitted.facts["features"])
        self.n_iter_, self.duality_gap_ = fitted.iterations, fitted.gap
        self._take(fitted)
        if not fitted.has_converged:
            warnings.warn(
                f"{type(self).__name__} came to a relative duality gap of {fitted.gap:.2e} in "
                f"{fitted.iterations} iterations; tol is {self.tol}. Raise max_iter or tol, or "
                "scale the features.",
                ConvergenceWarning,
                stacklevel=2,
            )
        return self

    @abc.abstractmethod
    def _task(self, given: Given) -> LinearTask:
        """Returns what is to be trained."""

    @abc.abstractmethod
    def _take(self, fitted: Fitted) -> None:
        """Keeps what was fitted."""

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
    check_commits(model.commit_seconds, model.replicas)
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

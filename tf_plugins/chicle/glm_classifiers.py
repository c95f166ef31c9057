"""Linear classifiers with scikit-learn's interface, which all ranks of a job fit together.

In one process they are plain estimators. Under horovodrun each rank gives `fit` its own part of the
samples, and all ranks end with the same model. They are trained by CoCoA (`cocoa.py`).
"""

from __future__ import annotations

import abc
from typing import Any

import numpy as np
from sklearn.base import ClassifierMixin
from sklearn.utils.multiclass import check_classification_targets

from trepak.tf_plugins.chicle.cluster import Arrays, Cluster
from trepak.tf_plugins.chicle.cocoa import Problem, Problems
from trepak.tf_plugins.chicle.cutting import CHUNK_BYTES
from trepak.tf_plugins.chicle.glm_agreement import all_classes
from trepak.tf_plugins.chicle.glm_fitting import Fitted
from trepak.tf_plugins.chicle.glm_model import Given, LinearModel
from trepak.tf_plugins.chicle.glm_trainer import LinearTask, Samples


class _LinearClassifier(ClassifierMixin, LinearModel, abc.ABC):
    """Binary models, or one for each class against all others."""

    def __init__(
        self,
        C: float = 1.0,  # noqa: N803
        *,
        fit_intercept: bool = True,
        intercept_scaling: float = 1.0,
        class_weight: Any = None,
        tol: float = 1e-4,
        max_iter: int = 1000,
        random_state: Any = None,
        chunk_bytes: int = CHUNK_BYTES,
        tasks: int = 1,
        commit_seconds: float = 10.0,
        replicas: bool = False,
        verbose: int = 0,
    ) -> None:
        """Makes one to be fitted; see `LinearSVC`."""
        how = chunk_bytes, tasks, commit_seconds, replicas, verbose
        super().__init__(tol, max_iter, random_state, *how)
        self.C = C
        self.fit_intercept = fit_intercept
        self.intercept_scaling = intercept_scaling
        self.class_weight = class_weight

    @abc.abstractmethod
    def _loss(self) -> str:
        """Returns what `Problem` calls the loss."""

    def _task(self, given: Given) -> LinearTask:
        return _Classes(given, self._loss(), self.C, self._bias(), self.class_weight)

    def _take(self, fitted: Fitted) -> None:
        self.classes_ = _classes_of(fitted.facts)
        biased = np.split(fitted.weights, [int(fitted.facts["features"])], axis=1)
        self.coef_ = np.ascontiguousarray(biased[0])
        self.intercept_ = (
            self._bias() * biased[1][:, 0] if self.fit_intercept else np.zeros(len(self.coef_))
        )

    def _bias(self) -> float:
        return float(self.intercept_scaling) if self.fit_intercept else 0.0

    def decision_function(self, X: Any) -> np.ndarray:  # noqa: N803
        """Returns how far samples are on each class's side: [samples], or [samples, classes]."""
        scores = self._score(X)
        return scores[:, 0] if len(self.classes_) == 2 else scores

    def predict(self, X: Any) -> np.ndarray:  # noqa: N803
        """Returns the classes of samples."""
        scores = self.decision_function(X)
        places = (scores > 0).astype(int) if scores.ndim == 1 else scores.argmax(axis=1)
        return self.classes_[places]


class LinearSVC(_LinearClassifier):
    """A linear support vector machine: ½‖w‖² + C Σ loss, the intercept's weight included.

    The objective is that of scikit-learn's LinearSVC, of the penalty "l2" and one model for each
    class against the others.
    """

    def __init__(
        self,
        C: float = 1.0,  # noqa: N803
        *,
        loss: str = "squared_hinge",
        fit_intercept: bool = True,
        intercept_scaling: float = 1.0,
        class_weight: Any = None,
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
            C: of each sample's loss.
            loss: "hinge" or "squared_hinge".
            fit_intercept: whether there is an intercept: the weight of a further feature.
            intercept_scaling: the value of that feature; a large one lessens its penalty.
            class_weight: by class, what its samples' losses are multiplied by; "balanced": so that
                all classes count alike.
            tol: the relative duality gap at which training ends.
            max_iter: passes over the samples after which it ends anyway, with a warning.
            random_state: a seed, or NumPy's RandomState.
            chunk_bytes: bytes of a chunk, at most.
            tasks: of a process that is alone: threads, each with its own part of the samples.
                Several need more passes, each of which is shorter. Under horovodrun each rank is
                one task.
            commit_seconds: see `trepak.chicle.train`.
            replicas: see there.
            verbose: 1: shows the duality gap as it falls, on rank 0.
        """
        super().__init__(
            C,
            fit_intercept=fit_intercept,
            intercept_scaling=intercept_scaling,
            class_weight=class_weight,
            tol=tol,
            max_iter=max_iter,
            random_state=random_state,
            chunk_bytes=chunk_bytes,
            tasks=tasks,
            commit_seconds=commit_seconds,
            replicas=replicas,
            verbose=verbose,
        )
        self.loss = loss

    def _loss(self) -> str:
        if self.loss not in ("hinge", "squared_hinge"):
            raise ValueError(f"loss must be 'hinge' or 'squared_hinge', got {self.loss!r}.")
        return self.loss


class LogisticRegression(_LinearClassifier):
    """Logistic regression: ½‖w‖² + C Σ log(1 + exp(−y x·w)), the intercept's weight included.

    The objective is liblinear's. Of several classes there is one model for each against the others,
    and `predict_proba` scales their probabilities so that they add up to 1. The arguments are those
    of `LinearSVC`.
    """

    def _loss(self) -> str:
        return "logistic"

    def predict_proba(self, X: Any) -> np.ndarray:  # noqa: N803
        """Returns the probabilities of all classes: [samples, classes]."""
        from scipy.special import expit

        scores = self.decision_function(X)
        shares = expit(scores)
        if shares.ndim == 1:
            return np.column_stack([expit(-scores), shares])
        sums = shares.sum(axis=1, keepdims=True)
        # Where no class seems possible, all are as likely.
        return np.where(sums > 0, shares / np.where(sums > 0, sums, 1), 1 / shares.shape[1])

    def predict_log_proba(self, X: Any) -> np.ndarray:  # noqa: N803
        """Returns the logarithms of `predict_proba`; of a class that can't be, a very small one."""
        return np.log(np.maximum(self.predict_proba(X), np.finfo(float).tiny))


class _Classes(LinearTask):
    """One class against the other, or each against all others."""

    def __init__(self, given: Given, loss: str, c: float, bias: float, class_weight: Any) -> None:
        self._given, self._loss, self._c, self._bias = given, loss, c, bias
        self._class_weight = class_weight

    def read(self, part: int, parts: int) -> Samples:
        return self._given.read(part, parts, check_classification_targets)

    def described(self, mine: Samples, cluster: Cluster) -> Arrays:
        classes = all_classes(mine.y, cluster)
        if len(classes) < 2:
            raise ValueError(
                "a classifier needs samples of at least two classes, and the samples of all ranks "
                f"are of one class: {classes[0]}."
            )
        places = np.searchsorted(classes, mine.y)
        by_class = _class_weights(self._class_weight, places, classes, mine.weight, cluster)
        is_object = np.asarray(classes.dtype.kind == "O")
        plain = classes.astype(str) if is_object else classes
        return {"classes": plain, "are_objects": is_object, "class_weights": by_class}

    def encoded(self, samples: Samples, facts: Arrays) -> Samples:
        classes = _classes_of(facts)
        known = np.isin(samples.y, classes)
        if not known.all():
            raise ValueError(
                "the samples have changed since the training began: class "
                f"{samples.y[~known][0]} is new."
            )
        places = np.searchsorted(classes, samples.y)
        weight = samples.weight * facts["class_weights"][places]
        return Samples(samples.x, places.astype(np.float64), weight)

    def problems(self, facts: Arrays) -> Problems:
        classes = len(facts["classes"])
        positives = [1] if classes == 2 else range(classes)
        each = [
            Problem(self._loss, self._c, positive=float(place), bias=self._bias)
            for place in positives
        ]
        return Problems(tuple(each), int(facts["features"]))


def _classes_of(facts: Arrays) -> np.ndarray:
    classes = facts["classes"]
    return classes.astype(object) if facts["are_objects"] else classes


def _class_weights(
    given: Any, places: np.ndarray, classes: np.ndarray, weight: np.ndarray, cluster: Cluster
) -> np.ndarray:
    """Returns by class what its samples' losses are multiplied by; a collective call."""
    if given is None:
        return np.ones(len(classes))
    if isinstance(given, str):
        if given != "balanced":
            raise ValueError(f"class_weight must be a dict, 'balanced' or None, got {given!r}.")
        mine = np.bincount(places, weight, len(classes))
        (counts,) = cluster.sum([mine])
        if not counts.all():
            none = classes[counts.argmin()]
            raise ValueError(f"class_weight='balanced': samples of class {none} have the weight 0.")
        balanced: np.ndarray = counts.sum() / (len(classes) * counts)
        return balanced
    unknown = [one for one in given if one not in classes]
    if unknown:
        raise ValueError(f"class_weight has class {unknown[0]!r}, of which there are no samples.")
    weights = np.asarray([given.get(one, 1.0) for one in classes.tolist()], float)
    if not (np.isfinite(weights) & (weights >= 0)).all():
        raise ValueError(f"class_weight must be finite and not negative, got {given!r}.")
    return weights

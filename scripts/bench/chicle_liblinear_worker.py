"""The process that times solvers of linear models for `trepak bench chicle`, one thread each."""

from __future__ import annotations

import json
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from sklearn import linear_model, svm
from sklearn.exceptions import ConvergenceWarning

from trepak import glm
from trepak.scripts.bench import rank
from trepak.scripts.bench.chicle_cases import CASES, Case
from trepak.scripts.bench.chicle_liblinear import NEAR, OURS, ROUNDS, Wanted
from trepak.scripts.idle_watch import IdleWatch

_TOLERANCES = (10.0, 3.0, 1.0, 0.3, 0.1, 0.03, 0.01, 3e-3, 1e-3, 3e-4, 1e-4)
_OPTIMAL = 1e-6  # the duality gap of what counts as the optimum
_PASSES = 10_000  # at most

Make = Callable[..., Any]  # an estimator, of `tol` and `random_state`


@dataclass(frozen=True)
class _Task:
    """A model to be fitted, whose objective is ½‖w‖² + C Σ loss, without an intercept."""

    x: Any
    y: np.ndarray  # -1 and 1
    c: float
    loss: str

    def above(self, optimum: float, fitted: Any) -> float:
        """Returns by which share of the optimal objective a model's is above it."""
        return self.objective(fitted) / optimum - 1

    def objective(self, fitted: Any) -> float:
        w = np.ravel(fitted.coef_)
        said = self.x @ w
        margins = self.y * said
        losses = {
            "hinge": lambda: np.maximum(0, 1 - margins),
            "squared_hinge": lambda: np.maximum(0, 1 - margins) ** 2,
            "logistic": lambda: np.logaddexp(0, -margins),
            "ridge": lambda: 0.5 * (self.y - said) ** 2,
        }
        return float(0.5 * w @ w + self.c * losses[self.loss]().sum())

    def ways(self) -> dict[str, Make]:
        """Returns by name what fits it, ours first."""
        plain: dict[str, Any] = {"fit_intercept": False, "max_iter": _PASSES}
        if self.loss == "ridge":
            alpha = {"alpha": 1 / self.c} | plain
            name = "sparse_cg" if hasattr(self.x, "tocsr") else "cholesky"  # scikit-learn's choice
            return {
                OURS: _made(glm.Ridge, **alpha),
                f"Ridge, {name}": _made(linear_model.Ridge, solver=name, **alpha),
            }
        if self.loss == "logistic":
            ours, theirs = glm.LogisticRegression, linear_model.LogisticRegression
            options = {"C": self.c, "solver": "liblinear"} | plain
            mine = {"C": self.c} | plain
        else:
            ours, theirs = glm.LinearSVC, svm.LinearSVC
            options = mine = {"C": self.c, "loss": self.loss} | plain
        duals = (True,) if self.loss == "hinge" else (True, False)  # the hinge loss has one solver
        others = {
            f"liblinear, {'dual' if dual else 'primal'}": _made(theirs, dual=dual, **options)
            for dual in duals
        }
        return {OURS: _made(ours, **mine), **others}


def _made(estimator: Any, **options: Any) -> Make:
    return lambda **given: estimator(**options, **given)


def measure(wanted: Wanted) -> list[dict[str, Any]]:
    """Returns what each fit took; see `ROUNDS`."""
    rows: list[dict[str, Any]] = []
    for case in (one for one in CASES if one.name in wanted.data_sets):
        x, y = case.make(wanted.samples, 0)
        x, classes = x.astype(np.float64), 2.0 * y - 1
        c = 1 / (case.regularization * len(y))
        for loss, rounds in wanted.rounds.items():
            rows += _fits(_Task(x, classes, c, loss), case, rounds)
    return rows


def _fits(task: _Task, case: Case, rounds: int) -> list[dict[str, Any]]:
    ways = task.ways()
    optimum = task.objective(ways[OURS](tol=_OPTIMAL, random_state=0).fit(task.x, task.y))
    best = {way: _largest_tolerance(task, make, optimum, rounds) for way, make in ways.items()}
    rows = []
    for number, order in enumerate(rank.rounds_of(list(ways), rounds)):
        for way in order:
            model = ways[way](tol=best[way], random_state=number)
            idle, began = IdleWatch(), time.perf_counter()
            model.fit(task.x, task.y)
            seconds = time.perf_counter() - began
            rows.append(
                {
                    "kind": ROUNDS,
                    "data_set": case.name,
                    "loss": task.loss,
                    "round": number,
                    "way": way,
                    "tol": best[way],
                    "passes": float(np.max(getattr(model, "n_iter_", None) or 0)),
                    "above_optimum": task.above(optimum, model),
                    "seconds": seconds,
                    **idle.shares(),
                }
            )
    return sorted(rows, key=lambda row: (list(ways).index(row["way"]), row["round"]))


def _largest_tolerance(task: _Task, make: Make, optimum: float, rounds: int) -> float:
    """Returns the largest tolerance with which a way comes near the optimum in every round.

    Raises:
        RuntimeError: none of them does.
    """
    for tol in _TOLERANCES:
        models = (make(tol=tol, random_state=number) for number in range(rounds))
        if all(task.above(optimum, one.fit(task.x, task.y)) <= NEAR for one in models):
            return tol
    raise RuntimeError(f"no tolerance down to {_TOLERANCES[-1]} comes near the optimum")


if __name__ == "__main__":
    given = rank.options()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        warnings.simplefilter("ignore", FutureWarning)
        given.output.write_text(json.dumps(measure(given.spec)))

"""Linear models: optima, convergence and scikit-learn's own checks, in one process."""

from __future__ import annotations

import itertools
import re
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn import linear_model, svm
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import estimator_checks
from sklearn.utils.estimator_checks import check_estimator

from trepak.glm import LinearSVC, LogisticRegression, Ridge
from trepak.ops.loader import call, in_place
from trepak.tf_plugins.chicle.cluster import OneProcess
from trepak.tf_plugins.chicle.cocoa import CocoaTrainer, Problem, Problems, seed_of
from trepak.tf_plugins.chicle.cutting import Cutting
from trepak.tf_plugins.chicle.glm_model import Given
from trepak.tf_plugins.chicle.glm_trainer import GlmTrainer
from trepak.tf_plugins.chicle.placing import place
from trepak.tf_plugins.chicle.sources import Arrays
from trepak.tf_plugins.chicle.training import Training


def classes(samples: int, number: int = 2, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(samples, 12)) * np.linspace(0.2, 1.5, 12)
    scores = x @ rng.normal(size=(12, number)) + rng.normal(size=(samples, number))
    return x, scores.argmax(axis=1)


def sparse(x: np.ndarray) -> Any:
    return sp.csr_array(np.where(np.abs(x) > 0.7, x, 0))


@pytest.mark.parametrize(
    ("model", "oracle"),
    [
        (LinearSVC(C=0.01, loss="hinge"), svm.LinearSVC(C=0.01, loss="hinge")),
        (LinearSVC(C=0.1), svm.LinearSVC(C=0.1)),
        (LogisticRegression(C=0.1), linear_model.LogisticRegression(C=0.1, solver="liblinear")),
    ],
    ids=["hinge", "squared_hinge", "logistic"],
)
@pytest.mark.parametrize("kind", ["dense", "float32", "sparse"])
@pytest.mark.parametrize("fit_intercept", [True, False])
def test_classifiers_reach_liblinears_optimum(
    model: Any, oracle: Any, kind: str, fit_intercept: bool
) -> None:
    x, y = classes(800)
    x = {"dense": x, "float32": x.astype("float32"), "sparse": sparse(x)}[kind]
    options = {"fit_intercept": fit_intercept, "max_iter": 100_000, "random_state": 1}
    model.set_params(tol=1e-8, tasks=2, chunk_bytes=20_000, **options).fit(x, y)
    oracle.set_params(tol=1e-10, **options).fit(x.astype("float64"), y)
    ours, theirs = (objective(model, fitted, x, y) for fitted in (model, oracle))
    assert ours == pytest.approx(theirs, rel=1e-6)
    assert 0 <= model.duality_gap_ <= 1e-8
    np.testing.assert_array_equal(model.predict(x), oracle.predict(x))


def objective(model: Any, fitted: Any, x: Any, y: np.ndarray) -> float:
    """Returns what liblinear minimizes, at what was fitted."""
    sign = np.where(y == fitted.classes_[1], 1, -1)
    margins = sign * (x @ fitted.coef_[0] + fitted.intercept_)
    losses = {
        "hinge": np.maximum(0, 1 - margins),
        "squared_hinge": np.maximum(0, 1 - margins) ** 2,
        "logistic": np.logaddexp(0, -margins),
    }[getattr(model, "loss", "logistic")]
    squares = (fitted.coef_**2).sum() + (np.asarray(fitted.intercept_) ** 2).sum()
    return float(0.5 * squares + model.C * losses.sum())


@pytest.mark.parametrize("tasks", [1, 3])
@pytest.mark.parametrize("fit_intercept", [True, False])
@pytest.mark.parametrize("is_sparse", [True, False])
def test_ridge_reaches_scikit_learns_optimum(
    tasks: int, fit_intercept: bool, is_sparse: bool
) -> None:
    x, _ = classes(600)
    y = x @ np.arange(12) + 5 + np.random.default_rng(1).normal(size=600)
    x = sparse(x + 0.3) if is_sparse else x + 0.3
    weight = np.random.default_rng(2).integers(0, 3, 600).astype(float)
    options = {"alpha": 30.0, "fit_intercept": fit_intercept}
    ours = Ridge(**options, tol=1e-14, tasks=tasks, max_iter=5000, chunk_bytes=20_000)
    theirs = linear_model.Ridge(**options, tol=1e-12, solver="auto")
    ours.fit(x, y, weight)
    theirs.fit(x, y, weight)
    np.testing.assert_allclose(ours.coef_, theirs.coef_, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(ours.predict(x), theirs.predict(x), rtol=1e-5, atol=1e-5)


def test_several_classes_are_one_against_the_rest() -> None:
    x, y = classes(600, 4)
    names = np.asarray(["ash", "birch", "elm", "oak"])[y]
    ours = LogisticRegression(C=0.1, tol=1e-9).fit(x, names)
    for number, name in enumerate(ours.classes_):
        alone = LogisticRegression(C=0.1, tol=1e-9).fit(x, names == name)
        np.testing.assert_allclose(ours.coef_[number], alone.coef_[0], atol=1e-4)
    assert ours.score(x, names) > 0.6
    shares = ours.predict_proba(x)
    assert shares.shape == (600, 4)
    np.testing.assert_allclose(shares.sum(axis=1), 1)


def test_weights_of_classes_and_samples_multiply_losses() -> None:
    x, y = classes(400)
    y = np.where(np.arange(400) % 3 == 0, y, 1)
    by_class = LinearSVC(C=0.1, tol=1e-9, class_weight={0: 3.0}).fit(x, y)
    by_sample = LinearSVC(C=0.1, tol=1e-9).fit(x, y, np.where(y == 0, 3.0, 1.0))
    theirs = svm.LinearSVC(C=0.1, tol=1e-10, class_weight={0: 3.0}, max_iter=100_000).fit(x, y)
    for other in (by_sample, theirs):
        np.testing.assert_allclose(by_class.coef_, other.coef_, rtol=1e-3, atol=1e-4)
    balanced = LinearSVC(C=0.1, tol=1e-9, class_weight="balanced").fit(x, y)
    theirs = svm.LinearSVC(C=0.1, tol=1e-10, class_weight="balanced", max_iter=100_000).fit(x, y)
    np.testing.assert_allclose(balanced.coef_, theirs.coef_, rtol=1e-3, atol=1e-4)


LOSSES = {
    # The best β of one sample, and its loss: what the native solver is compared with.
    "hinge": lambda y, z, q, c, b: y * np.clip(y * b - (y * z - 1) / q, 0, c),
    "squared_hinge": lambda y, z, q, c, b: (
        y * max(0, y * b - (y * z - 1 + y * b / (2 * c)) / (q + 1 / (2 * c)))
    ),
    "squared": lambda y, z, q, c, b: b + (y - z - b / c) / (q + 1 / c),
}


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("tasks", [1, 4, 16])
def test_each_epoch_is_that_of_plain_numpy_with_the_same_orders(loss: str, tasks: int) -> None:
    x, y = classes(640)
    problem = Problem(loss, 0.05, positive=None if loss == "squared" else 1.0)
    problems = Problems((problem,), 12)
    trainer = CocoaTrainer(problems, tol=0, max_iter=8, seed=5)
    fields = {"x": x, "y": y.astype(float), "weight": np.ones(640)}
    tasks_ = place(Cutting(fields, problems.state(), 4096), tasks, OneProcess(), seed=4)
    sign = y.astype(float) if loss == "squared" else np.where(y == 1, 1.0, -1.0)
    sizes = tasks_.sizes
    firsts = np.cumsum([0, *sizes])
    mine = {
        task: np.concatenate([np.arange(firsts[c], firsts[c + 1]) for c in store.ids])
        for task, store in tasks_.stores.items()
    }
    weights, betas = np.zeros(12), np.zeros(640)
    with Training(trainer, tasks_) as training:
        for iteration in range(8):
            training.iterate([trainer.weights])
            changes = []
            for task, samples in mine.items():
                order = np.empty(len(samples), np.int64)
                seed = seed_of(5, iteration, task, 0)
                call("cocoa_order", seed=seed, order=in_place(order))
                v = weights.copy()
                for i in samples[order]:
                    new = LOSSES[loss](sign[i], x[i] @ v, tasks * x[i] @ x[i], 0.05, betas[i])
                    v += tasks * (new - betas[i]) * x[i]
                    betas[i] = new
                changes.append((v - weights) / tasks)
            weights = weights + np.sum(changes, axis=0)
            np.testing.assert_allclose(trainer.weights[0], weights, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(weights, betas @ x, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("loss", ["hinge", "squared_hinge", "logistic", "squared"])
def test_the_gap_is_that_of_primal_and_dual_and_never_negative(loss: str) -> None:
    x, y = classes(300)
    problems = Problems((Problem(loss, 0.2, None if loss == "squared" else 1.0),), 12)
    trainer = CocoaTrainer(problems, tol=0, max_iter=60)
    fields = {"x": x, "y": y.astype(float), "weight": np.ones(300)}
    tasks = place(Cutting(fields, problems.state(), 8192), 2, OneProcess())
    with Training(trainer, tasks) as training:
        solvers = training._solvers.values()
        for _ in range(60):
            parts = [solver.evaluate(trainer.weights, anew=True)[1] for solver in solvers]
            trainer.weights = np.sum(parts, axis=0)
            objectives = sum(solver.evaluate(trainer.weights)[0] for solver in solvers)
            primals, gap = trainer.judge(objectives)
            duals = [
                (number, value)
                for store in tasks.stores.values()
                for chunk in store.chunks()
                for number, value in zip(chunk.view("y"), chunk.view("alpha")[:, 0], strict=True)
            ]
            dual = dual_objective(loss, np.asarray(duals), trainer.weights[0])
            assert gap >= 0
            assert gap * primals[0] == pytest.approx(primals[0] - dual, abs=1e-11 * primals[0])
            training.iterate([trainer.weights])
    assert gap < 1e-2


def dual_objective(loss: str, pairs: np.ndarray, weights: np.ndarray) -> float:
    y, beta = pairs[:, 0], pairs[:, 1]
    alpha = np.where(y == 1, 1, -1) * beta
    c = 0.2
    with np.errstate(divide="ignore", invalid="ignore"):
        entropy = np.nan_to_num(alpha / c * np.log(alpha / c)) + np.nan_to_num(
            (1 - alpha / c) * np.log(1 - alpha / c)
        )
    gains = {
        "hinge": alpha,
        "squared_hinge": alpha - alpha**2 / (4 * c),
        "logistic": -c * entropy,
        "squared": beta * y - beta**2 / (2 * c),
    }[loss]
    return float(gains.sum() - 0.5 * weights @ weights)


MODELS = {
    "svc": LinearSVC(),
    "hinge": LinearSVC(loss="hinge"),
    "logistic": LogisticRegression(),
    "ridge": Ridge(),
}
# Two checks compare weighted with repeated samples to seven digits, for which a gap of 1e-4 is too
# wide: they are run with a far smaller one.
EXACT = {
    "check_sample_weight_equivalence_on_dense_data": "compares to seven digits",
    "check_sample_weight_equivalence_on_sparse_data": "compares to seven digits",
}


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.SkipTestWarning")
@pytest.mark.timeout(300)
def test_scikit_learns_checks_pass(name: str) -> None:
    model = clone(MODELS[name])
    results = check_estimator(model, on_skip=None, on_fail=None, expected_failed_checks=EXACT)
    wrong = [one for one in results if one["status"] not in ("passed", "skipped")]
    assert {one["check_name"] for one in wrong} <= EXACT.keys(), wrong
    assert sum(one["status"] == "passed" for one in results) > 50
    # The gap of the hinge loss, which is no smooth one, falls more and more slowly.
    exact = clone(model).set_params(tol=1e-12 if name == "hinge" else 1e-18, max_iter=20_000)
    for check in EXACT:
        getattr(estimator_checks, check)(type(model).__name__, exact)


def test_what_does_not_converge_says_how_far_it_came() -> None:
    x, y = classes(300)
    with pytest.warns(ConvergenceWarning, match="gap of .* in 2 iterations; tol is 1e-12"):
        LinearSVC(tol=1e-12, max_iter=2).fit(x, y)


@pytest.mark.parametrize(
    ("model", "message"),
    [
        (LinearSVC(C=-1.0), "C must be above 0"),
        (LinearSVC(loss="log"), "loss must be 'hinge' or 'squared_hinge', got 'log'"),
        (LinearSVC(class_weight={7: 1.0}), "class 7, of which there are no samples"),
        (LogisticRegression(tasks=0), "tasks must be above 0"),
        (Ridge(alpha=0.0), "alpha must be above 0"),
        (LinearSVC(C=np.inf), "C must be above 0 and finite"),
        (LinearSVC(C="1"), "C must be a number, got '1'"),
        (LinearSVC(max_iter=2.5), "max_iter must be a whole number, got 2.5"),
        (LinearSVC(class_weight={0: -1.0}), "class_weight must be finite and not negative"),
        (LinearSVC(chunk_bytes=64), "sample 0 needs [0-9]+ bytes, and a chunk has 64: give larger"),
    ],
)
def test_parameters_that_are_wrong_are_named(model: Any, message: str) -> None:
    with pytest.raises((ValueError, TypeError), match=message):
        model.fit(*classes(50))


class Empty(OneProcess):
    """Two ranks, which have the same: no samples."""

    size = 2

    def gather(self, fact: Any, about: str) -> list[Any]:
        return 2 * super().gather(fact, about)


@pytest.mark.parametrize("model", [LinearSVC(), LogisticRegression(), Ridge()])
@pytest.mark.parametrize("has_source", [True, False])
def test_ranks_without_any_samples_are_an_error(model: Any, has_source: bool) -> None:
    x, y = np.zeros((0, 3)), np.zeros(0)
    given = Given(model, Arrays(x, y), None, None) if has_source else Given(model, x, y, None)
    trainer = GlmTrainer(model, model._task(given), seed=0)
    with pytest.raises(ValueError, match="none of the 2 ranks has samples for .*: give fit"):
        trainer.begin(Empty())


def test_the_gap_is_shown_as_it_falls(capsys: pytest.CaptureFixture[str]) -> None:
    """With the first and the last iteration, and no more than two lines a second between."""
    model = LinearSVC(C=0.01, tasks=2, chunk_bytes=20_000, verbose=1).fit(*classes(500))
    first, *_, last = capsys.readouterr().out.splitlines()
    assert first.startswith("LinearSVC iteration 0: duality gap 1.00e+00")
    assert last.startswith(f"LinearSVC iteration {model.n_iter_ - 1}: duality gap")
    assert "2 tasks, the slowest" in last
    LinearSVC(C=0.01, verbose=1).fit(*classes(500))
    assert re.search(r", 1 task, [0-9.]+ ms$", capsys.readouterr().out.splitlines()[-1])


def test_a_sparse_matrix_may_have_columns_in_any_order_and_twice() -> None:
    """It is read as SciPy reads it, and stays as it was."""
    x, y = classes(200)
    plain = sparse(x)
    order = np.concatenate([np.arange(a, b)[::-1] for a, b in itertools.pairwise(plain.indptr)])
    twice = sp.csr_array(
        (
            np.repeat(plain.data[order] / 2, 2),
            np.repeat(plain.indices[order], 2),
            plain.indptr * 2,
        ),
        shape=plain.shape,
    )
    before = twice.indices.copy()
    for part in (twice.indices, twice.data):
        part.flags.writeable = False
    models = [LinearSVC(0.1, random_state=1).fit(rows, y) for rows in (plain, twice)]
    np.testing.assert_allclose(models[0].coef_, models[1].coef_, rtol=1e-12)
    np.testing.assert_array_equal(twice.indices, before)


@pytest.mark.parametrize("column", [-3, 12, 5_000_000])
def test_a_sparse_matrix_with_columns_that_are_none_is_refused(column: int) -> None:
    x, y = classes(100)
    rows = sparse(x)
    rows.indices[5] = column
    with pytest.raises(ValueError, match="indices must be"):
        LinearSVC().fit(rows, y)


def test_large_margins_leave_the_gap_of_logistic_regression_finite() -> None:
    x, y = classes(200)
    with pytest.warns(ConvergenceWarning):
        model = LogisticRegression(max_iter=5).fit(1e8 * x, y)
    assert np.isfinite(model.duality_gap_)
    assert np.isfinite(model.predict_log_proba(1e8 * x)).all()

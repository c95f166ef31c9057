"""Linear models that all ranks fit together, each with its own part of the samples.

scikit-learn is imported in the cases: a job's start holds it back.
"""

from __future__ import annotations

import re
import time
from typing import Any

import numpy as np
import pytest
from harness import case

import trepak.keras as hvd
from trepak import chicle
from trepak.horovod_ext import exchange
from trepak.tf_plugins.chicle.cluster import chunk_mover, cluster_of_job
from trepak.tf_plugins.chicle.cocoa import CocoaTrainer, Problem, Problems
from trepak.tf_plugins.chicle.cutting import Cutting
from trepak.tf_plugins.chicle.glm_fitting import means
from trepak.tf_plugins.chicle.glm_trainer import Samples
from trepak.tf_plugins.chicle.placing import place


def parts(seed: int = 0) -> tuple[np.ndarray, np.ndarray, slice]:
    """Returns all samples, and which are this rank's: uneven, and of one class on the last rank."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(900, 8)) * np.linspace(0.3, 1.2, 8)
    y = (x @ rng.normal(size=8) + rng.normal(size=900) > 0).astype(int)
    order = np.argsort(y, kind="stable")
    cuts = [0, *(300 + 100 * rank for rank in range(hvd.size() - 1)), 900]
    return x[order], y[order], slice(cuts[hvd.rank()], cuts[hvd.rank() + 1])


def check_same_on_all_ranks(model: Any) -> None:
    """All ranks have one model."""
    told = [model.coef_.tolist(), np.atleast_1d(model.intercept_).tolist(), model.n_iter_]
    everyone = exchange.gather(told, "the model")
    assert all(theirs == everyone[0] for theirs in everyone), everyone


@case
def all_ranks_fit_what_one_process_fits_to_all_samples() -> None:
    import scipy.sparse as sp
    from sklearn import linear_model, svm

    from trepak.glm import LinearSVC, LogisticRegression

    x, y, mine = parts()
    sparse = sp.csr_array(np.where(np.abs(x) > 0.5, x, 0))
    options = {"tol": 1e-6, "max_iter": 20_000, "chunk_bytes": 8192, "random_state": 3}
    pairs = [
        (LinearSVC(0.1, **options), svm.LinearSVC()),
        (LogisticRegression(0.1, **options), linear_model.LogisticRegression(solver="liblinear")),
    ]
    for rows in (x, sparse):
        for model, oracle in pairs:
            model.fit(rows[mine], y[mine])
            check_same_on_all_ranks(model)
            assert 0 <= model.duality_gap_ <= 1e-6
            assert model.score(rows, y) > 0.75
            check_optimum(model, oracle, rows, y)


def check_optimum(model: Any, oracle: Any, x: Any, y: np.ndarray) -> None:
    """The objective over all samples is that of liblinear's optimum."""
    oracle.set_params(C=model.C, tol=1e-8, max_iter=100_000).fit(x, y)
    values = []
    for fitted in (model, oracle):
        weights = np.append(fitted.coef_[0], fitted.intercept_)
        margins = np.where(y == 1, 1, -1) * (x @ fitted.coef_[0] + fitted.intercept_)
        is_logistic = type(model).__name__ == "LogisticRegression"
        losses = np.logaddexp(0, -margins) if is_logistic else np.maximum(0, 1 - margins) ** 2
        values.append(0.5 * weights @ weights + model.C * losses.sum())
    np.testing.assert_allclose(values[0], values[1], rtol=1e-6)


@case
def ridge_is_centered_over_all_ranks() -> None:
    from trepak.glm import Ridge

    x, y, mine = parts(1)
    x, target = x + 2, x @ np.arange(8.0) + 3 * y
    model = Ridge(20.0, tol=1e-12, max_iter=20_000, chunk_bytes=8192)
    model.fit(x[mine], target[mine])
    check_same_on_all_ranks(model)
    middle = means(Samples(x[mine], target[mine], np.ones(len(x[mine]))), cluster_of_job())
    np.testing.assert_allclose(middle.x, x.mean(axis=0), rtol=1e-12)
    centered = x - x.mean(axis=0)
    left = centered.T @ centered + 20.0 * np.eye(8)
    exact = np.linalg.solve(left, centered.T @ (target - target.mean()))
    np.testing.assert_allclose(model.coef_, exact, rtol=1e-5, atol=1e-6)


@case
def chunks_are_dealt_over_all_ranks_whoever_read_them() -> None:
    _, _, mine = parts()
    before = chunk_mover().statistics()
    x = np.arange(900.0)[mine]
    tasks = place(Cutting({"x": x}, size=64 + 2 * 128 + 3 * 64), hvd.size(), cluster_of_job(), 1)
    stored = [chunk for store in tasks.stores.values() for chunk in store.chunks()]
    values = sorted(float(v) for chunk in stored for v in chunk.view("x"))
    everyone = exchange.gather(values, "samples")
    assert sorted(sum(everyone, [])) == np.arange(900.0).tolist()
    counts = exchange.gather(len(stored), "chunks")
    assert max(counts) - min(counts) <= 1, counts
    sent = chunk_mover().statistics()["chunks_sent"] - before.get("chunks_sent", 0)
    assert sent > 0


@case
def micro_tasks_are_several_on_each_rank() -> None:
    cutting = Cutting({"x": np.arange(300.0)}, size=64 + 2 * 128 + 3 * 64)
    tasks = place(cutting, 3 * hvd.size(), cluster_of_job(), 2)
    assert len(tasks.stores) == 3 and len(tasks.working) == 3 * hvd.size()


@case
def classes_that_one_rank_lacks_are_classes_of_the_model() -> None:
    from trepak.glm import LinearSVC

    x, y, mine = parts()
    names = np.asarray(["no", "yes"])[y]
    model = LinearSVC(0.1, chunk_bytes=8192, class_weight="balanced").fit(x[mine], names[mine])
    assert model.classes_.tolist() == ["no", "yes"]
    check_same_on_all_ranks(model)


@case
def a_rank_without_samples_takes_part() -> None:
    from trepak.glm import LogisticRegression, Ridge

    x, y, _ = parts()
    mine = slice(0) if hvd.rank() == 0 else slice(hvd.rank() - 1, None, hvd.size() - 1)
    for model, wanted in ((LogisticRegression(0.1), y), (Ridge(20.0), x[:, 0] + 1)):
        check_same_on_all_ranks(model.fit(x[mine], wanted[mine]))
        assert model.score(x, wanted) > 0.7
    # Fewer chunks than ranks: some ranks have no task.
    few = slice(0) if hvd.rank() == 0 else slice(hvd.rank() - 1, 20, hvd.size() - 1)
    classes = np.arange(900) % 3 // 2
    check_same_on_all_ranks(LogisticRegression(0.1).fit(x[few], classes[few]))


@case
def what_is_wrong_on_one_rank_is_an_error_of_all_at_once() -> None:
    from trepak.glm import LinearSVC, Ridge

    x, y, _ = parts()
    x, y = x[hvd.rank() :: hvd.size()].copy(), y[hvd.rank() :: hvd.size()]
    last = hvd.size() - 1
    wrong = x.copy()
    wrong[3, 2] = np.nan if hvd.rank() == last else 0
    narrow = x[:, : 8 - (hvd.rank() == last)]
    other = 0.1 * (1 + (hvd.rank() == last))
    for fit, said in (
        (lambda: LinearSVC().fit(wrong, y), "Input X contains NaN"),
        (lambda: LinearSVC().fit(narrow, y), f"features = 8, rank {last} one with 7"),
        (lambda: LinearSVC(other).fit(x, y), f"C = 0.1, rank {last} one with 0.2"),
        (lambda: (Ridge if other > 0.15 else LinearSVC)().fit(x, y), "class = LinearSVC"),
        (lambda: LinearSVC(chunk_bytes=64 + (hvd.rank() < last) * 9999).fit(x, y), "chunk_bytes ="),
        (lambda: LinearSVC().fit(x[:0], y[:0]), f"none of the {hvd.size()} ranks has samples"),
        (lambda: Ridge().fit(chicle.Arrays(x[:0], y[:0])), "samples for Ridge: give fit samples"),
    ):
        began = time.monotonic()
        with pytest.raises(ValueError, match=re.escape(said)) as caught:
            fit()
        assert time.monotonic() - began < 10
        if "NaN" in said and hvd.rank() != last:
            assert str(caught.value).startswith(f"rank {last} has failed: ValueError")


@case
def classes_of_different_dtypes_are_of_one_on_all_ranks() -> None:
    from trepak.glm import LinearSVC

    x, y, _ = parts()
    x, y = x[hvd.rank() :: hvd.size()], y[hvd.rank() :: hvd.size()]
    large = y.astype("uint8") if hvd.rank() == 0 else y.astype("int64") * 256
    model = LinearSVC(0.01, tol=1e-2).fit(x, large)
    assert model.classes_.tolist() == [0, 1, 256] and model.classes_.dtype == np.int64
    mixed = y.astype(str) if hvd.rank() == 0 else y
    with pytest.raises(ValueError, match="kinds that can't be mixed: rank 0 <U"):
        LinearSVC().fit(x, mixed)


@case
def a_solver_or_a_policy_that_fails_ends_the_training_on_all_ranks_at_once() -> None:
    cluster, problems = cluster_of_job(), Problems((Problem("squared", 1.0),), 2)
    fields = {"x": np.ones((40, 2)), "y": np.ones(40), "weight": np.ones(40)}
    last = hvd.size() - 1

    class Failing(chicle.Policy):
        def decide(self, situation: chicle.Situation) -> list[chicle.Move]:
            raise OSError("no idea")

    def broken(*_: Any) -> Any:
        raise OSError("no samples")

    for policies, rank, said in (([Failing()], 0, "no idea"), ([], last, "no samples")):
        tasks = place(Cutting(fields, problems.state()), hvd.size(), cluster)
        began = time.monotonic()
        with chicle.Training(CocoaTrainer(problems, 0.0, 50), tasks, cluster, policies) as training:
            if not policies and hvd.rank() == last:
                training._solvers[last].solve = broken
            expected = RuntimeError if policies else OSError
            mine = expected if hvd.rank() == rank else ValueError
            with pytest.raises(mine, match=said) as caught:
                training.run()
        assert hvd.rank() == rank or f"rank {rank} has failed" in str(caught.value)
        assert time.monotonic() - began < 10

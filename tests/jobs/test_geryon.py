"""Geryon: the same weights as BSP over Horovod, and its own promises; cases in tests/workers."""

from __future__ import annotations

from pathlib import Path

import pytest
from conftest import JOB_SECONDS, Shown, exact, run_job, shows
from test_bsp import OPTIMIZERS, count_features

from trepak.tf_plugins.transport.geryon_threshold_tuning import Trial, fitted_minimum


@shows({"geryon-mpi-2": ["exactness"], "geryon-gloo-4": ["exactness"]})
def test_weights_are_those_of_one_process(shown: Shown) -> None:
    shown.check(count_features(shown.plan.env["EXACTNESS_PART"]))


@shows({"geryon-mpi-2": ["overlap", "geryon"]})
def test_promises(shown: Shown) -> None:
    shown.check()


def check_every_feature(out: Path, np: int, gloo: bool, optimizer: str, way: str) -> None:
    job = run_job(["run.py", "exactness"], out, np, gloo, exact(optimizer, way), JOB_SECONDS)
    assert job.passed("exactness") == [count_features("1/1")] * np
    assert job.code == 0, job.output[-6000:]


@pytest.mark.soak
@pytest.mark.timeout(600)
@pytest.mark.parametrize("way", ["geryon", "geryon overlap"])
@pytest.mark.parametrize("optimizer", OPTIMIZERS)
@pytest.mark.parametrize("gloo", [False, True], ids=["mpi", "gloo"])
@pytest.mark.parametrize("np", [2, 4])
def test_every_optimizer_and_feature(
    tmp_path: Path, np: int, gloo: bool, optimizer: str, way: str
) -> None:
    check_every_feature(tmp_path, np, gloo, optimizer, way)


def test_threshold_is_where_the_fit_is_least() -> None:
    """A parabola with its minimum at 0.35, and some noise."""
    noise = [0.001, -0.001, 0.0005, -0.0005, 0.001]
    trials = [
        Trial(threshold, 1 + (threshold - 0.35) ** 2 + off)
        for threshold, off in zip((0.0, 0.2, 0.4, 0.6, 0.8), noise, strict=True)
    ]
    assert fitted_minimum(trials) == pytest.approx(0.35, abs=0.03)
    rising = [Trial(threshold, threshold) for threshold in (0.1, 0.5, 0.9)]
    assert fitted_minimum(rising) == 0.1

"""Geryon: the same weights as BSP over Horovod, and its own promises; cases in tests/workers."""

from __future__ import annotations

from pathlib import Path

import pytest
from conftest import run_job
from test_bsp import OPTIMIZERS, count_cases, count_features

from trepak.tf_plugins.transport.geryon_threshold_tuning import Trial, fitted_minimum


def check(
    out: Path,
    np: int,
    gloo: bool,
    optimizer: str,
    way: str,
    part: str = "1/1",
    workers: list[str] | None = None,
) -> None:
    env = {"EXACTNESS_OPTIMIZERS": optimizer, "EXACTNESS_WAY": way, "EXACTNESS_PART": part}
    program = ["run.py", "exactness", *(workers or [])]
    job = run_job(program, out, np=np, gloo=gloo, env=env, seconds=560)
    assert job.passed("exactness") == [count_features(part)] * np
    for worker in workers or []:
        assert job.passed(worker) == [count_cases(worker)] * np
    assert job.code == 0, job.output[-6000:]


@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    ("np", "gloo", "optimizer", "way", "part", "workers"),
    [
        (2, False, "adam", "geryon overlap", "1/1", ["overlap", "geryon"]),
        (4, True, "momentum", "geryon", "1/2", []),
    ],
    ids=["mpi-2-overlap", "gloo-4"],
)
def test_weights_are_those_of_one_process(
    tmp_path: Path, np: int, gloo: bool, optimizer: str, way: str, part: str, workers: list[str]
) -> None:
    check(tmp_path, np, gloo, optimizer, way, part, workers)


@pytest.mark.soak
@pytest.mark.timeout(600)
@pytest.mark.parametrize("way", ["geryon", "geryon overlap"])
@pytest.mark.parametrize("optimizer", OPTIMIZERS)
@pytest.mark.parametrize("gloo", [False, True], ids=["mpi", "gloo"])
@pytest.mark.parametrize("np", [2, 4])
def test_every_optimizer_and_feature(
    tmp_path: Path, np: int, gloo: bool, optimizer: str, way: str
) -> None:
    check(tmp_path, np, gloo, optimizer, way)


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

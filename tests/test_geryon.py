"""Geryon: the same weights as BSP over Horovod, and its own promises; cases in tests/workers."""

from __future__ import annotations

from pathlib import Path

import pytest
from conftest import run_job
from test_bsp import FEATURES, OPTIMIZERS, count_cases


def check(
    out: Path, np: int, gloo: bool, optimizer: str, way: str, workers: list[str] | None = None
) -> None:
    env = {"EXACTNESS_OPTIMIZERS": optimizer, "EXACTNESS_WAY": way}
    program = ["run.py", "exactness", *(workers or [])]
    job = run_job(program, out, np=np, gloo=gloo, env=env, seconds=560)
    assert job.passed("exactness") == [FEATURES] * np
    for worker in workers or []:
        assert job.passed(worker) == [count_cases(worker)] * np
    assert job.code == 0, job.output[-6000:]


@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    ("np", "gloo", "optimizer", "way", "workers"),
    [
        (2, False, "adam", "overlap", ["geryon"]),
        (4, True, "momentum", "geryon", []),
    ],
    ids=["mpi-2-overlap", "gloo-4"],
)
def test_weights_are_those_of_one_process(
    tmp_path: Path, np: int, gloo: bool, optimizer: str, way: str, workers: list[str]
) -> None:
    check(tmp_path, np, gloo, optimizer, way, workers)


@pytest.mark.soak
@pytest.mark.timeout(600)
@pytest.mark.parametrize("way", ["geryon", "overlap"])
@pytest.mark.parametrize("optimizer", OPTIMIZERS)
@pytest.mark.parametrize("gloo", [False, True], ids=["mpi", "gloo"])
@pytest.mark.parametrize("np", [2, 4])
def test_every_optimizer_and_feature(
    tmp_path: Path, np: int, gloo: bool, optimizer: str, way: str
) -> None:
    check(tmp_path, np, gloo, optimizer, way)

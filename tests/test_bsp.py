"""BSP: n ranks train as one process, on every launcher; the cases are in tests/workers."""

from __future__ import annotations

import json
import sys
from typing import Any

import pytest
from conftest import WORKERS, finish, start

# All optimizers × features on all four jobs takes half an hour: that is `make soak`. Here each job
# runs the whole row of features for one optimizer.
JOBS = [(2, False, "momentum"), (2, True, "adamw"), (3, False, "adam"), (3, True, "sgd")]
OPTIMIZERS = ["sgd", "momentum", "adam", "adamw"]
FEATURES = 23


def count_cases(worker: str) -> int:
    """Returns how many cases a worker declares, so that a job that runs none cannot pass."""
    return (WORKERS / f"{worker}.py").read_text().count("\n@case\n")


def name(np: int, gloo: bool) -> str:
    return f"{'gloo' if gloo else 'mpi'}-{np}"


@pytest.mark.parametrize(
    ("np", "gloo", "optimizer"), JOBS, ids=[f"{name(n, g)}-{o}" for n, g, o in JOBS]
)
def test_exactness(job: Any, np: int, gloo: bool, optimizer: str) -> None:
    outcome = job("exactness", np=np, gloo=gloo, env={"EXACTNESS_OPTIMIZERS": optimizer})
    outcome.check()
    assert [len(results) for results in outcome.ranks] == [FEATURES] * np


@pytest.mark.soak
@pytest.mark.timeout(3000)
@pytest.mark.parametrize("gloo", [False, True], ids=["mpi", "gloo"])
@pytest.mark.parametrize("np", [2, 3])
def test_exactness_of_every_combination(job: Any, np: int, gloo: bool) -> None:
    outcome = job("exactness", np=np, gloo=gloo, seconds=2900)
    outcome.check()
    assert [len(results) for results in outcome.ranks] == [FEATURES * len(OPTIMIZERS)] * np


def test_every_keras_optimizer(job: Any) -> None:
    outcome = job("optimizers", np=2)
    outcome.check()
    assert len(outcome.ranks[0]) >= 12


# Three ranks where it matters how many there are; `training` and `features` take their time.
PROMISES = [
    *((worker, 2, False) for worker in ("features", "isolation", "training", "bad_input")),
    *((worker, 3, True) for worker in ("isolation", "bad_input")),
    *((worker, 2, True) for worker in ("features", "training")),
]


@pytest.mark.parametrize(
    ("worker", "np", "gloo"), PROMISES, ids=[f"{w}-{name(n, g)}" for w, n, g in PROMISES]
)
def test_promises(job: Any, worker: str, np: int, gloo: bool) -> None:
    outcome = job(worker, np=np, gloo=gloo)
    outcome.check()
    assert [len(results) for results in outcome.ranks] == [count_cases(worker)] * np


@pytest.mark.parametrize("worker", ["features", "isolation", "training"])
def test_one_process_without_a_launcher(tmp_path: Any, worker: str) -> None:
    """Size 1: everything works, and nothing waits for anyone."""
    command = [sys.executable, str(WORKERS / f"{worker}.py")]
    code, output = finish(start(command, tmp_path), 250)
    assert code == 0, output[-3000:]
    results = json.loads((tmp_path / "0.json").read_text())
    failed = {case: r["error"] for case, r in results.items() if not r["ok"]}
    assert len(results) == count_cases(worker) and not failed, failed

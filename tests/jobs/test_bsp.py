"""BSP: n ranks train as one process, on every launcher; the cases are in tests/workers."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from conftest import WORKERS, Job, Shown, count_cases, finish, run_job, shows, start

OPTIMIZERS = ["sgd", "momentum", "adam", "adamw"]
FEATURES = 23
PROMISES = ["features", "isolation", "training", "bad_input"]
GROUND = [
    "alike",
    "alike_weights",
    "alike_layers",
    "alike_models",
    "callbacks",
    "drop_in",
    "loss_scaling",
    "metrics",
    "own_metrics",
    "sync_batch_norm",
    "migrating",
    "dtypes",
    "narrow_training",
    "sparse",
    "encrypted",
]
# Elastic jobs run under Gloo alone.
ON_GLOO = ["features", "elastic_state", "dtypes", "narrow_training", "sparse", "encrypted"]
ON_THREE = ["sparse", "broadcasting"]
ALONE = ["features", "isolation", "training", "migrating", "sparse", "dynamic_sharding"]


def count_features(part: str) -> int:
    """Returns how many features "I/K" means."""
    first, every = map(int, part.split("/"))
    return len(range(FEATURES)[first - 1 :: every])


@shows(
    {
        "mpi-2": PROMISES + GROUND,
        "gloo-2": ON_GLOO,
        "mpi-3": ON_THREE,
        "gloo-3": [*ON_THREE, "isolation", "bad_input"],
    }
)
def test_promises(shown: Shown) -> None:
    shown.check()


@shows({name: ["exactness"] for name in ("mpi-2", "gloo-2", "mpi-3", "gloo-3")})
def test_weights_are_those_of_one_process(shown: Shown) -> None:
    shown.check(count_features(shown.plan.env["EXACTNESS_PART"]))


@shows({"mpi-2": ["optimizers"]})
def test_every_optimizer_of_keras(shown: Shown) -> None:
    assert min(shown.job.passed("optimizers")) >= 12


@pytest.mark.soak
@pytest.mark.timeout(3000)
@pytest.mark.parametrize("gloo", [False, True], ids=["mpi", "gloo"])
@pytest.mark.parametrize("np", [2, 3])
def test_exactness_of_every_combination(tmp_path: Path, np: int, gloo: bool) -> None:
    job = run_job(["run.py", "exactness"], tmp_path, np=np, gloo=gloo, seconds=2900)
    assert job.passed("exactness") == [FEATURES * len(OPTIMIZERS)] * np
    assert job.code == 0, job.output[-6000:]


def test_one_process_without_a_launcher(tmp_path: Path) -> None:
    """Size 1: everything works, and nothing waits for anyone."""
    code, output = finish(start([sys.executable, str(WORKERS / "run.py"), *ALONE], tmp_path), 280)
    assert code == 0, output[-3000:]
    job = Job(code, output, [json.loads((tmp_path / "0.json").read_text())])
    assert [job.passed(worker) for worker in ALONE] == [[count_cases(w)] for w in ALONE]

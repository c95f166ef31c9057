"""BSP: n ranks train as one process, on every launcher; the cases are in tests/workers."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from conftest import WORKERS, Job, finish, run_job, start

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
ALONE = ["features", "isolation", "training", "migrating", "sparse"]


class Plan(NamedTuple):
    """A job: its launcher, the optimizer and features that it compares, and what it shows besides.

    `part` is "I/K": every K-th feature, from the I-th.
    """

    np: int
    gloo: bool
    optimizer: str
    part: str
    workers: list[str]

    def all(self) -> list[str]:
        """Returns all workers."""
        return ["exactness", *self.workers]


# All optimizers × features on all four jobs takes 20 minutes: that is `make soak`, as are the
# longest workers under Gloo. Here each job runs one optimizer, two ranks with every feature, three
# ranks with every feature on one launcher or the other. Elastic jobs run under Gloo alone.
PLANS = {
    "mpi-2": Plan(2, False, "momentum", "1/1", ["optimizers", *PROMISES, *GROUND]),
    "gloo-2": Plan(
        2,
        True,
        "adamw",
        "1/1",
        ["features", "elastic_state", "dtypes", "narrow_training", "sparse", "encrypted"],
    ),
    "mpi-3": Plan(3, False, "adam", "1/2", ["sparse"]),
    "gloo-3": Plan(3, True, "sgd", "2/2", ["isolation", "bad_input", "sparse"]),
}
SHOWN = [(name, worker) for name, plan in PLANS.items() for worker in plan.all()]


def count_cases(worker: str) -> int:
    """Returns how many cases a worker declares, so that a job that runs none cannot pass."""
    source = (WORKERS / f"{worker}.py").read_text()
    return len(re.findall(r"^(?:@case$|add\(__name__, )", source, re.MULTILINE))


def count_features(part: str) -> int:
    """Returns how many features "I/K" means."""
    first, every = map(int, part.split("/"))
    return len(range(FEATURES)[first - 1 :: every])


@pytest.fixture(scope="module")
def jobs(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Returns a function that gives the finished job of a plan; each runs once."""
    finished: dict[str, Job] = {}

    def job(name: str) -> Job:
        if name not in finished:
            plan = PLANS[name]
            program = ["run.py", *plan.all()]
            env = {"EXACTNESS_OPTIMIZERS": plan.optimizer, "EXACTNESS_PART": plan.part}
            out = tmp_path_factory.mktemp(name)
            finished[name] = run_job(program, out, plan.np, plan.gloo, env, seconds=560)
        return finished[name]

    return job


@pytest.mark.timeout(600)
@pytest.mark.parametrize(("name", "worker"), SHOWN, ids=["-".join(one) for one in SHOWN])
def test_promises(jobs: Any, name: str, worker: str) -> None:
    passed = jobs(name).passed(worker)
    plan = PLANS[name]
    if worker == "optimizers":
        assert min(passed) >= 12
    else:
        exact = worker == "exactness"
        expected = count_features(plan.part) if exact else count_cases(worker)
        assert passed == [expected] * plan.np


@pytest.mark.timeout(600)
@pytest.mark.parametrize("name", PLANS)
def test_jobs_end_well(jobs: Any, name: str) -> None:
    assert jobs(name).code == 0, jobs(name).output[-6000:]


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

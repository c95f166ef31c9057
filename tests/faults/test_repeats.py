"""The multi-process tests again and again (`make soak`): what fails once in twenty fails here."""

from __future__ import annotations

import runpy
from pathlib import Path

import pytest
import test_dynamic_sharding
import test_elastic
import test_failures
import test_own_pace_faults
from conftest import JOB_SECONDS, PLANS, SHOWN, count_cases, run_job

for file in sorted(Path(test_elastic.__file__).parent.glob("test_*.py")):
    runpy.run_path(str(file))  # so that SHOWN has all workers of the shared jobs

ROUNDS = 20
rounds = pytest.mark.parametrize("round", range(ROUNDS))
pytestmark = pytest.mark.soak
COUNTED_ELSEWHERE = ("exactness", "optimizers", "contract", "fela")  # by its own test


@rounds
@pytest.mark.timeout(JOB_SECONDS + 40)
@pytest.mark.parametrize("name", PLANS)
def test_shared_jobs(tmp_path: Path, name: str, round: int) -> None:
    plan = PLANS[name]
    assert SHOWN[name], "no test asks for this job"
    program = ["run.py", *SHOWN[name]]
    job = run_job(program, tmp_path, plan.np, plan.gloo, plan.env, JOB_SECONDS)
    for worker in SHOWN[name]:
        passed = job.passed(worker)
        assert worker in COUNTED_ELSEWHERE or passed == [count_cases(worker)] * plan.np
    assert job.code == 0, job.output[-6000:]


@rounds
def test_killed_ranks(tmp_path: Path, round: int) -> None:
    (tmp_path / "mpi").mkdir()
    test_failures.test_mpi_ends_the_job_and_names_the_rank(tmp_path / "mpi", "fit", rank=1)
    (tmp_path / "gloo").mkdir()
    test_failures.test_gloo_survivors_name_the_killed_rank(tmp_path / "gloo", "fit", rank=1)


@rounds
def test_elastic_ranks(tmp_path: Path, round: int) -> None:
    test_elastic.test_goes_on_after_a_rank_is_killed(tmp_path, "horovod")


@rounds
def test_killed_ranks_of_flows(tmp_path: Path, round: int) -> None:
    (tmp_path / "killed").mkdir()
    test_failures.test_flows_name_the_killed_rank(tmp_path / "killed")
    (tmp_path / "elastic").mkdir()
    test_elastic.test_goes_on_after_a_rank_is_killed(tmp_path / "elastic", "geryon")


@rounds
@pytest.mark.parametrize("rank", [0, 2])
def test_killed_ranks_that_take_samples(tmp_path: Path, rank: int, round: int) -> None:
    test_dynamic_sharding.test_who_takes_samples_learns_that_a_rank_died(tmp_path, rank)


@rounds
@pytest.mark.parametrize(("way", "rank"), test_own_pace_faults.KILLED)
def test_killed_ranks_of_rounds(tmp_path: Path, way: str, rank: int, round: int) -> None:
    test_own_pace_faults.test_survivors_name_the_killed_rank(tmp_path, way, rank)

"""The multi-process tests again and again (`make soak`): what fails once in twenty fails here."""

from __future__ import annotations

from pathlib import Path

import pytest
import test_bsp
import test_dynamic_sharding
import test_elastic
import test_elastic_bsp
import test_exchanged_values
import test_failures
import test_own_pace_faults
import test_rna
from conftest import run_job

ROUNDS = 20
rounds = pytest.mark.parametrize("round", range(ROUNDS))
pytestmark = pytest.mark.soak


@rounds
@pytest.mark.timeout(600)
@pytest.mark.parametrize("gloo", [False, True], ids=["mpi", "gloo"])
def test_promises(tmp_path: Path, gloo: bool, round: int) -> None:
    workers = [*test_bsp.PROMISES, *test_bsp.GROUND, *(["elastic_state"] if gloo else [])]
    job = run_job(["run.py", *workers], tmp_path, gloo=gloo, seconds=560)
    for worker in workers:
        assert job.passed(worker) == [test_bsp.count_cases(worker)] * 2
    assert job.code == 0, job.output[-6000:]


@rounds
def test_killed_ranks(tmp_path: Path, round: int) -> None:
    (tmp_path / "mpi").mkdir()
    test_failures.test_mpi_ends_the_job_and_names_the_rank(tmp_path / "mpi", rank=1)
    (tmp_path / "gloo").mkdir()
    test_failures.test_gloo_survivors_raise_horovod_internal_error(tmp_path / "gloo", "fit")


@rounds
def test_elastic_ranks(tmp_path: Path, round: int) -> None:
    test_elastic.test_goes_on_after_a_rank_is_killed(tmp_path, "horovod")


@rounds
@pytest.mark.parametrize("gloo", [False, True], ids=["mpi", "gloo"])
def test_flows(tmp_path: Path, gloo: bool, round: int) -> None:
    job = run_job(
        ["run.py", "overlap", "geryon"],
        tmp_path,
        gloo=gloo,
        env={"EXACTNESS_WAY": "geryon overlap"},
    )
    assert job.passed("geryon") == [test_bsp.count_cases("geryon")] * 2
    assert job.code == 0, job.output[-6000:]


@rounds
def test_killed_ranks_of_flows(tmp_path: Path, round: int) -> None:
    (tmp_path / "killed").mkdir()
    test_failures.test_flows_name_the_killed_rank(tmp_path / "killed")
    (tmp_path / "elastic").mkdir()
    test_elastic.test_goes_on_after_a_rank_is_killed(tmp_path / "elastic", "geryon")


@rounds
@pytest.mark.parametrize("gloo", [False, True], ids=["mpi", "gloo"])
def test_rounds(tmp_path: Path, gloo: bool, round: int) -> None:
    test_rna.test_rounds(tmp_path, 3, gloo)


@rounds
@pytest.mark.parametrize("gloo", [False, True], ids=["mpi", "gloo"])
@pytest.mark.parametrize("worker", ["rna_groups", "rna_auto"])
def test_groups_of_rounds(tmp_path: Path, worker: str, gloo: bool, round: int) -> None:
    test_rna.test_groups(tmp_path, worker, gloo)


@rounds
@pytest.mark.parametrize(("np", "gloo"), [(2, False), (3, True)], ids=["mpi-2", "gloo-3"])
def test_supersteps(tmp_path: Path, np: int, gloo: bool, round: int) -> None:
    test_elastic_bsp.test_supersteps(tmp_path, np, gloo)


@rounds
@pytest.mark.parametrize("gloo", [False, True], ids=["mpi", "gloo"])
def test_rounding(tmp_path: Path, gloo: bool, round: int) -> None:
    test_exchanged_values.test_what_rounding_takes_away_is_kept(tmp_path, gloo)


@rounds
@pytest.mark.parametrize(("np", "gloo"), [(2, False), (3, True)], ids=["mpi-2", "gloo-3"])
def test_samples_of_one_order(tmp_path: Path, np: int, gloo: bool, round: int) -> None:
    test_dynamic_sharding.test_dynamic_sharding(tmp_path, np, gloo)


@rounds
@pytest.mark.parametrize("rank", [0, 2])
def test_killed_ranks_that_take_samples(tmp_path: Path, rank: int, round: int) -> None:
    test_dynamic_sharding.test_who_takes_samples_learns_that_a_rank_died(tmp_path, rank)


@rounds
@pytest.mark.parametrize(("way", "rank"), test_own_pace_faults.KILLED)
def test_killed_ranks_of_rounds(tmp_path: Path, way: str, rank: int, round: int) -> None:
    test_own_pace_faults.test_survivors_name_the_killed_rank(tmp_path, way, rank)

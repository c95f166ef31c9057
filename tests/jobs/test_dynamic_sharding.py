"""Samples that ranks take from one order; cases in tests/workers."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from conftest import run_job
from test_bsp import count_cases
from test_failures import LIMIT, check_survivors_of_flows, kill_one, nothing_is_left


@pytest.mark.timeout(200)
@pytest.mark.parametrize(
    ("np", "gloo"), [(1, True), (2, False), (3, True)], ids=["gloo-1", "mpi-2", "gloo-3"]
)
def test_dynamic_sharding(tmp_path: Path, np: int, gloo: bool) -> None:
    job = run_job(["run.py", "dynamic_sharding"], tmp_path, np=np, gloo=gloo)
    assert job.passed("dynamic_sharding") == [count_cases("dynamic_sharding")] * np, job.output
    assert job.code == 0, job.output[-6000:]


@pytest.mark.parametrize("samples", [1, 2, 2**16, 2**16 + 1, 2**17 + 1, 2**18 + 1])
def test_a_pass_has_each_sample_once(samples: int) -> None:
    from trepak.tf_plugins.data.dynamic_sharding import shuffled

    taken = shuffled(samples, 2 * samples, samples, seed=7).numpy().reshape(2, samples)
    np.testing.assert_array_equal(np.sort(taken), [range(samples)] * 2)
    assert samples < 3 or (taken[0] != taken[1]).any()


@pytest.mark.parametrize("rank", [0, 2])  # the latter's server counts what is taken
def test_who_takes_samples_learns_that_a_rank_died(tmp_path: Path, rank: int) -> None:
    code, output, seconds, killed_at = kill_one(tmp_path, gloo=True, loop="order", rank=rank)
    assert code != 0
    assert seconds < LIMIT, f"{seconds:.1f} s\n{output[-3000:]}"
    check_survivors_of_flows(tmp_path, killed_at, LIMIT, rank)
    nothing_is_left(tmp_path)

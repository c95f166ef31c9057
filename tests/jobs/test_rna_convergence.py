"""RNA converges as the thesis proves; cases in tests/workers."""

from __future__ import annotations

from pathlib import Path

import pytest
from conftest import count_cases, run_job


@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    # What is proved holds for a schedule of rounds, whatever has started the ranks.
    "gloo",
    [pytest.param(False, marks=pytest.mark.soak), True],
    ids=["mpi", "gloo"],
)
def test_gradients_vanish_as_proved(tmp_path: Path, gloo: bool) -> None:
    job = run_job(["run.py", "rna_convergence"], tmp_path, np=4, gloo=gloo)
    assert job.passed("rna_convergence") == [count_cases("rna_convergence")] * 4, job.output[-6000:]
    assert job.code == 0, job.output[-6000:]

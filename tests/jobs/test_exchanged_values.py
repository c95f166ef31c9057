"""Variables of fewer bits than ranks exchange; cases in tests/workers."""

from __future__ import annotations

from pathlib import Path

import pytest
from conftest import run_job
from test_bsp import count_cases


@pytest.mark.timeout(120)
@pytest.mark.parametrize("gloo", [False, True], ids=["mpi", "gloo"])
def test_what_rounding_takes_away_is_kept(tmp_path: Path, gloo: bool) -> None:
    job = run_job(["run.py", "exchanged_values"], tmp_path, np=2, gloo=gloo)
    cases = count_cases("exchanged_values")
    assert job.passed("exchanged_values") == [cases] * 2, job.output[-6000:]
    assert job.code == 0, job.output[-6000:]

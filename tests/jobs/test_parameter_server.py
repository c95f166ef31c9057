"""The parameter servers over real flows, under both launchers; the cases are in tests/workers."""

from __future__ import annotations

from pathlib import Path

import pytest
from conftest import run_job
from test_bsp import count_cases


@pytest.mark.timeout(300)
@pytest.mark.parametrize(("np", "gloo"), [(3, False), (2, True)], ids=["mpi-3", "gloo-2"])
def test_sums_travel_between_ranks(tmp_path: Path, np: int, gloo: bool) -> None:
    job = run_job(["run.py", "parameter_server"], tmp_path, np=np, gloo=gloo)
    assert job.passed("parameter_server") == [count_cases("parameter_server")] * np
    assert job.code == 0, job.output[-6000:]

"""ElasticBSP, SSP and ASP; cases in tests/workers."""

from __future__ import annotations

from pathlib import Path

import pytest
from conftest import run_job
from test_bsp import count_cases


@pytest.mark.timeout(300)
@pytest.mark.parametrize(("np", "gloo"), [(2, False), (3, True)], ids=["mpi-2", "gloo-3"])
def test_supersteps(tmp_path: Path, np: int, gloo: bool) -> None:
    job = run_job(["run.py", "elastic_bsp"], tmp_path, np=np, gloo=gloo)
    assert job.passed("elastic_bsp") == [count_cases("elastic_bsp")] * np, job.output[-6000:]
    assert job.code == 0, job.output[-6000:]

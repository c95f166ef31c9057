"""RNA: rounds that nobody waits for; cases in tests/workers."""

from __future__ import annotations

from pathlib import Path

import pytest
from conftest import run_job
from test_bsp import count_cases


@pytest.mark.timeout(300)
@pytest.mark.parametrize(("np", "gloo"), [(2, False), (3, True)], ids=["mpi-2", "gloo-3"])
def test_rounds(tmp_path: Path, np: int, gloo: bool) -> None:
    job = run_job(["run.py", "rna", "adpsgd"], tmp_path, np=np, gloo=gloo)
    for worker in ("rna", "adpsgd"):
        assert job.passed(worker) == [count_cases(worker)] * np, job.output[-6000:]
    assert job.code == 0, job.output[-6000:]

"""MPI's ranks that sleep while they wait, so that more ranks than cores can share a machine."""

from __future__ import annotations

from pathlib import Path

import pytest
from conftest import run_job

from trepak.ops import loader
from trepak.scripts.launcher import sharing

NP = 3


def cores_taken(out: Path, env: dict[str, str]) -> float:
    """Returns how many cores the waiting ranks of a job took together."""
    job = run_job(["waiting.py"], out, NP, env=env)
    assert job.code == 0, job.output
    assert len(job.ranks) == NP
    return sum(rank["share"] for rank in job.ranks)


def test_waiting_ranks_leave_the_cores(tmp_path: Path) -> None:
    polling = cores_taken(tmp_path / "polling", {})
    sleeping = cores_taken(tmp_path / "sleeping", sharing(NP))
    assert sleeping < 0.5 * polling, (sleeping, polling)


def test_what_lets_ranks_share(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("LD_PRELOAD", raising=False)
    monkeypatch.delenv("HOROVOD_CYCLE_TIME", raising=False)
    assert sharing(1) == {"LD_PRELOAD": str(loader.mpi_yield_path())}
    assert sharing(1000, gloo=True) == {"HOROVOD_CYCLE_TIME": "5"}
    monkeypatch.setenv("LD_PRELOAD", "mine.so")
    monkeypatch.setenv("HOROVOD_CYCLE_TIME", "2")
    found = sharing(1000)
    assert found["LD_PRELOAD"].endswith(":mine.so")
    assert found["HOROVOD_CYCLE_TIME"] == "2"


def test_missing_library_says_what_to_do(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(loader, "__file__", str(tmp_path / "loader.py"))
    with pytest.raises(ImportError, match="make setup"):
        loader.mpi_yield_path()

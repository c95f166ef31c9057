"""A job whose input is read ahead, when a reader ends, when its data is wrong, when rank 0 dies."""

from __future__ import annotations

import time
from pathlib import Path

import psutil
import pytest
from conftest import Job, run_job


def job(what: str, out: Path, gloo: bool) -> Job:
    return run_job(["reader_faults.py", what], out, 2, gloo, seconds=120)


def test_a_reader_that_ends_is_named(tmp_path: Path) -> None:
    """Before that, what readers bring was the same training as without them."""
    done = job("reader", tmp_path, gloo=True)
    pid = (tmp_path / "reader").read_text()
    named = [
        f"rank {rank}: reader 0 of the input (pid {pid} on " in found["error"]
        for rank, found in enumerate(done.ranks)
    ]
    # One that got a batch more than the other waits for that one in a step, and hears of its end.
    assert any(named), done.output
    assert all(found["seconds"] < 10 for found in done.ranks)


@pytest.mark.soak
def test_an_id_that_no_table_has_is_named(tmp_path: Path) -> None:
    done = job("data", tmp_path, gloo=False)
    # A rank may hear of the other's end, or the reader's, before the service tells it why.
    named = ["feature 'b of rank 1': the id at position 0 is" in one["error"] for one in done.ranks]
    assert any(named), done.output
    assert all(found["error"] for found in done.ranks)


@pytest.mark.soak
@pytest.mark.parametrize("gloo", [False, True])
def test_readers_end_with_rank_0(tmp_path: Path, gloo: bool) -> None:
    assert job("rank", tmp_path, gloo).code != 0
    pid, deadline = int((tmp_path / "reader").read_text()), time.monotonic() + 5
    while psutil.pid_exists(pid):
        assert time.monotonic() < deadline, "the reader has outlived its job"
        time.sleep(0.1)

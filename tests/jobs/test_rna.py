"""RNA: rounds that nobody waits for; cases in tests/workers."""

from __future__ import annotations

from pathlib import Path

import pytest
from conftest import Shown, run_job, shows

from trepak.horovod_ext import rna_groups

WORKERS = ["rna", "rna_epochs", "adpsgd"]


@shows({"pace-mpi-2": WORKERS, "pace-gloo-3": WORKERS})
def test_rounds(shown: Shown) -> None:
    shown.check()
    if shown.worker == "rna":
        warnings = shown.job.output.count("a gradient of rank 0 is not finite")
        assert warnings == 1, shown.job.output[-6000:]


@shows({"mpi-3": ["rna_groups"], "pace-gloo-3": ["rna_auto"]})
def test_groups(shown: Shown) -> None:
    """Fixed ones, and those that RNA makes."""
    shown.check()


@pytest.mark.soak
@pytest.mark.timeout(900)
@pytest.mark.parametrize("gloo", [False, True], ids=["mpi", "gloo"])
def test_ten_thousand_rounds(tmp_path: Path, gloo: bool) -> None:
    job = run_job(["run.py", "rna_soak"], tmp_path, np=4, gloo=gloo, seconds=800)
    assert job.passed("rna_soak") == [1] * 4, job.output[-6000:]
    assert job.code == 0, job.output[-6000:]


def test_groups_are_split_while_the_slowest_takes_more_than_the_mean_longer() -> None:
    assert rna_groups.split({0: 1.0, 1: 1.0, 2: 2.9, 3: 2.9}) == [[0, 1, 2, 3]]
    # Equal halves: only if the slow ones take over three times as long.
    assert rna_groups.split({0: 1.0, 1: 3.1, 2: 1.0, 3: 3.1}) == [[0, 2], [1, 3]]
    # Again within the slow ones, and within the fast ones.
    times = {0: 1.0, 1: 1.1, 2: 10.0, 3: 50.0, 4: 12.0, 5: 4.0}
    assert rna_groups.split(times) == [[0, 1], [5], [2, 4], [3]]
    assert rna_groups.split({0: 5.0}) == [[0]]


@pytest.mark.parametrize("groups", [[[0, 1]], [[0, 1], [1, 2]], [[0, 1, 2], []], [[0, 1], [3]]])
def test_groups_have_each_rank_once(groups: list[list[int]]) -> None:
    with pytest.raises(ValueError, match="in one of them"):
        rna_groups.check(groups, 3)

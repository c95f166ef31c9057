"""ElasticBSP, SSP and ASP; cases in tests/workers."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import WORKERS, Shown, finish, horovodrun, shows, start

A_DAY_AHEAD = ["unshare", "--time", "--monotonic", "86400", "--boottime", "86400", "--fork"]


def has_clocks_to_shift() -> bool:
    return subprocess.run([*A_DAY_AHEAD, "true"], capture_output=True, check=False).returncode == 0


@shows({"pace-mpi-2": ["elastic_bsp"], "pace-gloo-3": ["elastic_bsp"]})
def test_supersteps(shown: Shown) -> None:
    shown.check()


@shows({"still-gloo-3": ["standing_still"]})
def test_ranks_that_stand_still(shown: Shown) -> None:
    shown.check()
    late = f"trepak: rank {shown.plan.np - 1}"
    assert f"{late} does not answer" in shown.job.output
    assert f"{late} answers again" in shown.job.output


@pytest.mark.skipif(not has_clocks_to_shift(), reason="time namespaces need root, and Linux 5.6")
@pytest.mark.timeout(120)
def test_clocks_of_hosts_may_differ(tmp_path: Path) -> None:
    wrapper = tmp_path / "start.sh"
    shifted = f'[ "$HOROVOD_RANK" = 1 ] && exec {" ".join(A_DAY_AHEAD)} "$@"'
    wrapper.write_text(f'#!/bin/sh\n{shifted}\nexec "$@"\n')
    wrapper.chmod(0o755)
    script = [sys.executable, str(WORKERS / "run.py"), "elastic_bsp:barriers_come"]
    job = start([*horovodrun(2, gloo=True), str(wrapper), *script], tmp_path)
    code, output = finish(job, 100)
    assert code == 0, output[-6000:]
    results = []
    for rank in range(2):
        results += json.loads((tmp_path / f"{rank}.json").read_text()).values()
    for result in results:
        assert result["ok"], result["error"]
    assert results[1]["value"]["clock"] > results[0]["value"]["clock"] + 86_000

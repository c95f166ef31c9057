"""What `trepak bench zipline` makes of its measurements."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import numpy as np
import pytest
from test_lab import TREPAK

from trepak.horovod_ext.zipline import Barrier
from trepak.scripts.bench import bench_zipline


def found(seconds: float, waiting: float = 1.0) -> Barrier:
    return Barrier(waiting, 5.0, np.ones(2, np.int64), seconds)


def test_claims_are_ratios_of_medians() -> None:
    trials = [
        {
            "zipline": found(0.002 * pace),
            "paper": found(0.03 * pace),
            "grid_scan": found(0.1, 1.25),
            "full_grid_scan": found(90.0),
        }
        for pace in (1, 1, 7)
    ]
    claims = bench_zipline.summarize([((1000, 150), trials)], {}).claims
    assert claims["zipline.speedup_1000x150_vs_paper_algorithm"].value == pytest.approx(15)
    assert claims["zipline.ms_1000x150"].value == pytest.approx(2)
    assert claims["zipline.gridscan_excess_wait"].value == pytest.approx(0.25)


def test_other_barriers_than_the_papers_are_an_error() -> None:
    trial = dict.fromkeys(("zipline", "grid_scan", "full_grid_scan"), found(1.0))
    with pytest.raises(RuntimeError, match="other barriers"):
        bench_zipline.summarize([((10, 15), [trial | {"paper": found(1.0, 0.9)}])], {})


def test_quick_run_measures(tmp_path: Path) -> None:
    path = tmp_path / "zipline.json"
    command = [TREPAK, "bench", "zipline", "--quick", "--json", str(path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr
    rows = [r for r in json.loads(path.read_text())["rows"] if r["kind"] == bench_zipline.SEARCHES]
    assert [(row["workers"], row["lookahead"]) for row in rows] == [(10, 15), (10, 150), (100, 15)]
    assert all(0 < row["zipline"] < row["full_grid_scan"] for row in rows)

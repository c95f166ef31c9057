"""`trepak bench`: the quick run really measures, and a full run judges what it measured."""

import io
import json
import math
import subprocess
import sys
from pathlib import Path

import pytest
from rich.console import Console
from test_lab import why_impossible

from trepak.scripts.bench import bench_bsp
from trepak.scripts.bench.bsp_lab import RAW
from trepak.scripts.launcher import JobError
from trepak.scripts.report import Claim, Options, Report, conclude
from trepak.scripts.surroundings import Surroundings

TREPAK = str(Path(sys.executable).parent / "trepak")
BSP_CLAIMS = {
    "bsp.step_time_vs_raw_horovod": ("lower", 1.01, False),
    "bsp.speedup_vs_multiworker_mirrored": ("higher", 1.1, False),
}
IN_A_LAB = {
    "bsp.step_time_vs_raw_horovod.alexnet_10g": ("lower", 1.02, True),
    "bsp.fraction_of_limit.alexnet_10g": ("higher", None, True),
}
QUICK_CLAIMS = BSP_CLAIMS | (IN_A_LAB if not why_impossible() else {})
CLAIM_KEYS = {"value", "unit", "target", "better", "paper", "emulated"}


@pytest.fixture(scope="module")
def quick(tmp_path_factory):
    """One quick run: the finished process, its JSON and the folder it wrote to."""
    folder = tmp_path_factory.mktemp("bench")
    done = subprocess.run(
        [TREPAK, "bench", "bsp", "--quick", "--json", "out/bsp.json"],
        cwd=folder,
        capture_output=True,
        text=True,
        stdin=subprocess.DEVNULL,
        timeout=280,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done, json.loads((folder / "out/bsp.json").read_text()), folder


def test_quick_run_prints_tables_and_no_verdict(quick):
    done, _, _ = quick
    for name in QUICK_CLAIMS:
        assert name in done.stdout
    assert "no claim was checked" in done.stdout
    assert "missed" not in done.stdout.lower()


def test_json_has_the_shared_format(quick):
    _, report, _ = quick
    assert set(report) == {"bench", "claims", "rows", "environment"}
    assert report["bench"] == "bsp"
    assert set(report["claims"]) == set(QUICK_CLAIMS)
    for name, claim in report["claims"].items():
        assert set(claim) == CLAIM_KEYS
        assert (claim["better"], claim["target"], claim["emulated"]) == QUICK_CLAIMS[name]
        assert (claim["unit"], claim["paper"]) == ("" if "fraction" in name else "x", None)
        assert 0 < claim["value"] < 100
    environment = report["environment"]
    assert {"cores", "versions", "date", "commit", "cpu", "launcher"} <= set(environment)
    assert environment["versions"]["keras"].startswith("3.")
    assert 0 <= environment["cpu_idle_share"] <= 1


def test_rows_hold_what_the_claims_are_made_of(quick):
    _, report, _ = quick
    steps = [row for row in report["rows"] if row["kind"] == "step time of each round"]
    rounds = {row["round"] for row in steps}
    assert len(rounds) >= 2
    methods = {row["arm"] for row in steps}
    assert methods >= {"trepak fit", *RAW, "MultiWorkerMirrored"}
    for row in steps:
        assert 0 < row["min_ms"] <= row["q1_ms"] <= row["median_ms"] <= row["q3_ms"]
        assert row["q3_ms"] <= row["max_ms"]
    same = [row for row in report["rows"] if row["kind"].startswith("weights after")]
    assert len(same) == 4
    assert all(row["difference_per_tolerance"] <= 1 for row in same)


def test_picture_is_drawn_beside_the_json(quick):
    _, _, folder = quick
    assert (folder / "out/bsp.png").read_bytes().startswith(b"\x89PNG")


def outcome(fit, raw, mirrored, difference=0.0):
    """What one rank would report; each argument holds the step times of one method, by round."""
    rounds = [
        {
            "trepak fit": [a] * 3,
            RAW[0]: [b] * 3,
            RAW[1]: [1.5 * b] * 3,
            "MultiWorkerMirrored": [c] * 3,
            "one rank alone": [0.05] * 3,
            "allreduce alone": [0.01] * 3,
        }
        for a, b, c in zip(fit, raw, mirrored, strict=True)
    ]
    return {
        "batch": 64,
        "gradient_bytes": 10_000_000,
        "differences": {"trepak fit": difference, RAW[0]: 0.0},
        "idle": {"Horovod running": 0.1},
        "rounds": rounds,
    }


def test_claims_are_medians_of_the_rounds_ratios():
    ranks = [
        outcome([0.10, 0.11, 0.30], [0.09, 0.10, 0.10], [0.20, 0.20, 0.20]),
        outcome([0.12, 0.13, 0.32], [0.11, 0.10, 0.10], [0.22, 0.20, 0.20]),
    ]
    report = bench_bsp.summarize(ranks, {})
    values = {name: claim.value for name, claim in report.claims.items()}
    assert values["bsp.step_time_vs_raw_horovod"] == pytest.approx(0.12 / 0.10)
    assert values["bsp.speedup_vs_multiworker_mirrored"] == pytest.approx(0.20 / 0.12)


@pytest.mark.parametrize("difference", [1.5, math.nan])
def test_arms_that_did_different_work_are_not_compared(difference):
    with pytest.raises(
        JobError, match="trepak fit and raw Horovod, grouped came to different weights"
    ):
        bench_bsp.summarize([outcome([0.1], [0.1], [0.1], difference)], {})


@pytest.mark.parametrize(
    ("value", "target", "better", "met"),
    [
        (1.0, 1.05, "lower", True),
        (1.05, 1.05, "lower", True),
        (1.06, 1.05, "lower", False),
        (1.0, 1.0, "higher", True),
        (0.99, 1.0, "higher", False),
        (math.nan, 1.0, "higher", False),
        (math.nan, 1.0, "lower", False),
    ],
)
def test_claim_is_met(value, target, better, met):
    assert Claim(value, "x", target, better).met is met


def judge(tmp_path, quick, **values):
    claims = {f"x.{name}": Claim(value, "x", 1.0, "higher") for name, value in values.items()}
    rows = [{"kind": "measurements", "what": "steps", "ms": 1.5}]
    report = Report("x", claims, rows, Surroundings().environment("horovodrun"))
    output = io.StringIO()
    path = tmp_path / "x.json"
    console = Console(file=output, width=100)
    status = conclude(report, Options(quick=quick), path, console)
    return status, output.getvalue(), json.loads(path.read_text())


def test_full_run_fails_where_a_claim_misses_and_names_it(tmp_path):
    status, output, written = judge(tmp_path, quick=False, fast=1.2, slow=0.8)
    assert status == 1
    assert "MISSED: x.slow is 0.8 x; it must be at least 1." in output
    assert "MISSED: x.fast" not in output
    assert set(written["claims"]) == {"x.fast", "x.slow"}


def test_full_run_that_meets_its_claims_succeeds(tmp_path):
    status, output, _ = judge(tmp_path, quick=False, fast=1.2)
    assert status == 0
    assert "met" in output and "MISSED" not in output


def test_quick_run_judges_nothing_and_says_so(tmp_path):
    status, output, _ = judge(tmp_path, quick=True, slow=0.1)
    assert status == 0
    assert "no claim was checked" in output
    assert "missed" not in output.lower()


def test_surroundings_tell_the_load_and_the_idle_share():
    environment = Surroundings().environment("horovodrun -np 2")
    assert environment["launcher"] == "horovodrun -np 2"
    assert environment["cores"] >= 1
    assert {"trepak", "keras", "horovod", "python"} <= set(environment["versions"])

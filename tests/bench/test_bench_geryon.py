"""What `trepak bench geryon` makes of its measurements, and that it measures."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest
from matplotlib.figure import Figure
from test_lab import TREPAK, needs_lab

from trepak.scripts.bench import geryon_figures, geryon_order, geryon_report
from trepak.scripts.bench.bench_geryon import jobs
from trepak.scripts.bench.exchanges import (
    ALONE,
    ALTERNATIVES,
    END_HOST,
    FIGURES,
    FIVE_METHODS,
    GERYON,
    NETWORKS,
    OVERLAP,
    RING,
    SLICING,
    SUMS,
    VANILLA,
    Job,
    Method,
)
from trepak.scripts.bench.geryon_alternatives import OVER_FLOWS, PARTITIONED, PLAIN
from trepak.scripts.bench.tf_parameter_server import step_seconds

YOLO = NETWORKS[-1]
# The less urgent answer and the urgent one, by round.
ORDERED = geryon_order.rows_of(
    {END_HOST: [(0.9, 0.8), (0.9, 1.0), (0.9, 0.9)], GERYON: [(0.9, 0.4), (0.9, 0.5), (0.9, 0.6)]},
    idle=0.8,
)
SECONDS = {
    ALONE: 1.8,
    VANILLA: 9.0,
    SLICING: 2.7,
    END_HOST: 2.1,
    OVERLAP: 2.2,
    RING: 2.5,
    GERYON: 1.9,
}


def measured(seconds: float, stolen: float = 0.0) -> dict[str, Any]:
    return {
        "times": [seconds] * 3,
        "idle": 0.5,
        "stolen": stolen,
        "bytes": [300.0, 100.0],
        "lookup_ms": [*[0.4] * 18, 0.5, 90.0],
        "served_bytes": 5e9,
        "serving_s": 2.0,
    }


def outcomes_of(job: Job) -> list[list[dict[str, Any]]]:
    """Rank 1 is a tenth slower; the last round is disturbed, and slow."""
    by_rank = []
    for rank in range(2):
        quiet = {a.name: measured(SECONDS[a.kind] * (1 + rank / 10)) for a in job.methods}
        disturbed = {a.name: measured(99.0, stolen=0.2) for a in job.methods}
        if rank:  # has no part in it
            quiet[ALONE] = disturbed[ALONE] = {}
        by_rank.append([quiet, disturbed])
    return by_rank


def test_claims_come_from_rounds_that_nobody_disturbed() -> None:
    job = Job(YOLO, 8, 10, 1000.0, [Method(kind) for kind in (ALONE, *FIVE_METHODS)], rounds=2)
    report = geryon_report.summarize([(job, outcomes_of(job))], [], ORDERED, {})
    values = {name: claim.value for name, claim in report.claims.items()}
    assert values["geryon.efficiency.yolo"] == pytest.approx(1.8 / (1.1 * 1.9))
    assert values["geryon.speedup_vs_vanilla.yolo"] == pytest.approx(9.0 / 1.9)
    assert values["geryon.speedup_vs_partition_slicing"] == pytest.approx(2.7 / 1.9)
    assert values["geryon.schedule_ms"] == 0.5
    assert values["geryon.urgent_speedup_vs_end_host"] == pytest.approx(0.9 / 0.5)
    assert "server.gbit_per_core" not in values, "shrunken slices say nothing of it"
    rows = {row["way"]: row for row in report.rows if "efficiency" in row}
    assert rows[GERYON]["high_share"] == pytest.approx(0.75)
    assert rows[GERYON]["images_per_s"] == pytest.approx(8 * 64 / (1.1 * 1.9))
    assert rows[ALONE]["workers"] == 1
    # The emulated K40's 1.8 s per step are the limit; other links would make no difference.
    assert rows[GERYON]["limit_s"] == pytest.approx(1.79, abs=0.02)
    assert rows[SLICING]["predicted_s"] > rows[END_HOST]["predicted_s"]
    assert report.believable


def test_servers_are_timed_with_true_slices() -> None:
    five = Job(YOLO, 4, 10, 10.0, [Method(kind) for kind in (ALONE, *FIVE_METHODS)], rounds=2)
    methods = [Method(ALONE), Method(GERYON, 10 * 1024)]
    sums = Job(YOLO, 2, 10, 10.0, methods, rounds=2, purpose=SUMS)
    report = geryon_report.summarize(
        [(job, outcomes_of(job)) for job in (five, sums)], [], ORDERED, {}
    )
    assert report.claims["server.gbit_per_core"].value == pytest.approx(20.0)


def test_all_figures_can_be_drawn(tmp_path: Path) -> None:
    methods = [Method(kind) for kind in (ALONE, *FIVE_METHODS)]
    more = {8: [Method(GERYON, 256), Method(END_HOST, 256)], 2: [Method(SLICING, 256)]}
    jobs = [
        Job(network, workers, gbit, 1000.0, [*methods, *more[workers]], 2)
        for network in NETWORKS
        for workers in (2, 8)
        for gbit in (10, 40)
    ]
    report = geryon_report.summarize([(job, outcomes_of(job)) for job in jobs], [], ORDERED, {})
    figure = Figure()
    geryon_figures.draw(report, figure)
    used = [axes for axes in figure.axes if axes.axison]
    assert len(used) == 15
    # More than the line that marks the limit.
    assert all(len(axes.lines) + len(axes.patches) > 1 for axes in used)
    figure.savefig(tmp_path / "geryon.png")
    speedups = {
        (row["accelerator"], row["gbit"]): row["potential_speedup"]
        for row in report.rows
        if row["kind"] == geryon_figures.POTENTIAL
    }
    assert speedups["k40", 8] == pytest.approx(1.31, abs=0.03), "the paper's"


def test_claims_over_what_users_have() -> None:
    methods = [Method(kind) for kind in (ALONE, RING, GERYON)]
    job = Job(YOLO, 8, 10, 1000.0, methods, rounds=2, purpose=ALTERNATIVES)
    others = [
        {"kind": "alternatives", "way": kind, "step_s": seconds, "cpu_idle": 0.1}
        for kind, seconds in ((PLAIN, 4.0), (PARTITIONED, 3.0), (OVER_FLOWS, 2.0))
    ]
    five = Job(YOLO, 8, 10, 1000.0, [Method(kind) for kind in (ALONE, *FIVE_METHODS)], rounds=2)
    measured = [(one, outcomes_of(one)) for one in (five, job)]
    report = geryon_report.summarize(measured, others, ORDERED, {})
    values = {name: claim.value for name, claim in report.claims.items()}
    ours = 1.1 * SECONDS[GERYON]
    assert values["geryon.speedup_vs_tf_parameter_server"] == pytest.approx(4.0 / ours)
    assert values["geryon.tf_protocol_speedup"] == pytest.approx(1.5)
    assert values["geryon.speedup_vs_horovod_ring"] == pytest.approx(2.5 / SECONDS[GERYON])
    assert not report.believable, "the CPU was too busy"


def test_steps_of_parameter_servers_count_while_all_are_at_work() -> None:
    """Two workers that take 2 s; one begins a second later, and each has had a slow first step."""
    ends = [10.0, 12.0, 14.0, 16.0, 11.0, 13.0, 15.0, 17.0]
    assert step_seconds(ends, 2) == pytest.approx(2.0)


def test_full_plan_has_all_that_the_tables_need() -> None:
    planned = jobs(quick=False)
    assert {(c.network.model, c.workers, c.gbit) for c in planned} == {
        (n.model, workers, gbit) for n in NETWORKS for workers in (2, 4, 8) for gbit in (10, 40)
    }
    alternatives, sums, *five = planned
    assert sums.purpose == SUMS and sums.methods[-1].slice_k / sums.shrink == 1024
    assert alternatives.purpose == ALTERNATIVES and {a.kind for a in alternatives.methods} == {
        ALONE,
        RING,
        GERYON,
    }
    for job in five:
        assert {ALONE, *FIVE_METHODS} <= {method.kind for method in job.methods}
        assert job.shrink * job.stretch >= {10: 80, 40: 320}[job.gbit]
        assert job.workers * job.bits_per_second <= 1e9, "what 2 cores carry"
        assert job.purpose == FIGURES
    thresholds = [(a.kind, a.slice_k) for c in planned for a in c.methods if c.workers == 8]
    for slice_k in (512, 256):
        assert {(END_HOST, slice_k), (GERYON, slice_k)} <= set(thresholds)


@needs_lab
@pytest.mark.soak
def test_quick_run_measures(tmp_path: Path) -> None:
    path = tmp_path / "geryon.json"
    done = subprocess.run(
        [TREPAK, "bench", "geryon", "--quick", "--json", str(path)],
        capture_output=True,
        text=True,
        stdin=subprocess.DEVNULL,
        timeout=200,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    report = json.loads(path.read_text())
    urgent = {row["way"]: row["urgent_s"] for row in report["rows"] if "urgent_s" in row}
    assert urgent[GERYON] < 0.75 * urgent[END_HOST], "answers share a link, or don't"
    steps = {row["way"]: row["step_s"] for row in report["rows"] if "step_s" in row}
    assert set(steps) == {ALONE, SLICING, GERYON}
    assert min(steps.values()) > 0.7, "an emulated K40 takes 0.8 s for 512 images of AlexNet"
    assert path.with_suffix(".png").exists()

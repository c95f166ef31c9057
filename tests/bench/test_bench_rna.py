"""What `trepak bench rna` makes of its measurements."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest
from matplotlib.figure import Figure
from test_lab import TREPAK, needs_lab

from trepak.scripts.bench import rna_figures, rna_report
from trepak.scripts.bench.bench_rna import jobs
from trepak.scripts.bench.rna_cases import cases
from trepak.scripts.bench.uneven import comparison
from trepak.scripts.bench.uneven.methods import ADPSGD, EAGER, GROUPED, HOROVOD, RNA
from trepak.scripts.bench.uneven.tasks import task
from trepak.scripts.report import Options

# After each epoch: seconds, loss, accuracy.
CURVE = [(10.0, 1.6, 0.5), (20.0, 0.8, 0.8), (30.0, 0.2, 0.9), (40.0, 0.3, 0.88)]


def test_dropped_gradients_do_not_count() -> None:
    case, dropping = cases(8)[0], run(RNA, 0, 1.0)
    plain = rna_report.row_of(case, run(RNA, 0, 1.0))["gradients_per_s"]
    dropping["ranks"][3] = {**dropping["ranks"][3], "rounds": {"dropped": 40}}
    dropped = rna_report.row_of(case, dropping)["gradients_per_s"]
    assert plain - dropped == pytest.approx(40 / 40.0)  # in 40 s


def run(
    method: str, seed: int, pace: float, least: float = 0.2, stopped_early: bool = False
) -> dict[str, Any]:
    """Returns a training that takes `pace` times as long as CURVE."""
    curve = [(pace * seconds, max(loss, least), accuracy) for seconds, loss, accuracy in CURVE]
    rank = {
        "curve": curve,
        "steps": 100,
        "drawn_s": 28.0 * pace,
        "computed_s": 30.0 * pace,
        "began_s": 1.0,
        "drained_s": 2.0,
        "figures": {"copied_s": 0.4},
        "stopped_early": stopped_early,
        "training_accuracies": [0.3, 0.7, 0.9, 0.95],
        "own_ms": 5.0,
        "rounds": {}
        if method == HOROVOD
        else {"rounds": 50, "contributors": 150, "contributed": 40},
        "idle": 0.5,
        "stolen": 0.0,
    }
    return {"way": method, "seed": seed, "ranks": [rank] * 8}


def report_of(paces: dict[str, float], least: float = 0.2, stopped_early: bool = False) -> Any:
    measured = []
    for case in cases(8):
        runs = [
            run(method, seed, pace, least if method == RNA else 0.2, stopped_early)
            for seed in range(3)
            for method, pace in paces.items()
            if method in case.methods
        ]
        measured.append((case, runs))
    return rna_report.summarize(measured, {})


PACES = {HOROVOD: 2.0, RNA: 1.0, EAGER: 1.5, ADPSGD: 1.25, GROUPED: 0.8}


def test_claims_are_ratios_of_times() -> None:
    report = report_of(PACES)
    claims = {name: claim.value for name, claim in report.claims.items()}
    assert claims["rna.time_to_loss_vs_horovod"] == pytest.approx(2.0)
    assert claims["rna.fraction_of_bound"] == pytest.approx(2.0 / cases(8)[0].bound(step_ms=800))
    assert claims["rna.gradients_per_second_vs_horovod"] == pytest.approx(2.0)
    assert claims["rna.time_to_loss_vs_eager_sgd"] == pytest.approx(1.5)
    assert claims["rna.time_to_loss_vs_adpsgd_at_equal_accuracy"] == pytest.approx(1.25)
    assert claims["rna_hierarchical.time_to_loss_mixed_vs_horovod"] == pytest.approx(2.5)
    # RNA's steps take 1000 * 40 * 8 / 800 = 400 ms. Horovod's take 800: 600 to compute, 30 in the
    # begins and ends of epochs, and they should take 1 to exchange.
    assert claims["rna.overhead_even"] == pytest.approx(400 / 631)
    assert claims["rna.worker_utilisation"] == pytest.approx(0.7)  # 28 s were drawn
    assert claims["rna.copy_share"] == pytest.approx(0.01)
    assert claims["rna.accuracy_gap"] == 100.0  # none of them was trained to its end
    report = report_of(PACES, stopped_early=True)
    assert report.claims["rna.accuracy_gap"].value == 0.0
    ended = [row for row in report.rows if row["kind"] == rna_report.ACCURACIES]
    methods = {
        case: [row["way"] for row in ended if row["case"] == case]
        for case in {row["case"] for row in ended}
    }
    assert methods["accuracy"] == methods["accuracy lstm"] == [HOROVOD, RNA, EAGER, ADPSGD]
    assert set(methods["accuracy mixed"]) == {HOROVOD, GROUPED, EAGER, ADPSGD}
    assert {row["training_accuracy"] for row in ended} == {0.95}
    thesis = {(row["case"], row["way"]): row["thesis_accuracy"] for row in ended}
    assert thesis["accuracy vgg", RNA] == 0.922
    assert thesis["accuracy mixed", GROUPED] is None
    assert claims["rna.probe_speedup"] > 1.5
    json.loads(report.to_json())


def test_who_never_reaches_the_target_has_gained_nothing() -> None:
    report = report_of(PACES, least=2.0)
    assert report.claims["rna.time_to_loss_vs_horovod"].value == 0.0
    assert "rna.fraction_of_bound" in report.missed()
    json.loads(report.to_json())


def test_trainings_that_went_astray_are_reported() -> None:
    measured = []
    for case in cases(8):
        astray = run(RNA, 0, 1.0)
        for rank in astray["ranks"]:
            rank["curve"] = [(10.0, float("nan"), 0.0), (20.0, float("inf"), 0.0)]
        measured.append((case, [run(HOROVOD, 0, 2.0), astray]))
    report = rna_report.summarize(measured, {})
    assert report.claims["rna.time_to_loss_vs_horovod"].value == 0.0
    json.loads(report.to_json())
    rna_figures.draw(report, Figure())


def test_ways_that_were_not_run_are_not_claimed() -> None:
    report = report_of({HOROVOD: 2.0, RNA: 1.0})
    assert "rna.time_to_loss_vs_eager_sgd" not in report.claims
    rna_figures.draw(report, Figure())


def test_figures_are_drawn_of_every_case() -> None:
    figure = Figure()
    rna_figures.draw(report_of(PACES), figure)
    titles = {axes.get_title() for axes in figure.axes}
    assert {case.name for case in cases(8)} <= titles


def test_bounds_follow_from_the_delays() -> None:
    """(c + E[max of n delays] + x) / (c + E[delay])."""
    resnet = cases(8)[0]
    most = 500 * 8 / 9  # of 8 uniform delays
    assert resnet.bound() == pytest.approx((100 + most + 100) / (100 + 250), rel=0.01)
    assert resnet.bound(step_ms=resnet.step_ms() - 100) == pytest.approx(
        (100 + most) / 350, rel=0.01
    )


def test_networks_have_the_parameters_that_links_are_made_for() -> None:
    for case in cases(8):
        assert task(case.task).build().count_params() == case.parameters, case.name


def test_the_bench_is_planned_with_five_seeds() -> None:
    planned = jobs(Options())
    seeds = {one.case.name: len(one.seeds) for one in planned}
    for name in ("transformer on 2", "transformer on 4", "vgg mixed"):
        assert seeds.pop(name) == 1
    for name, trainings in (("vgg", 3), ("lstm", 3), ("mixed", 1), ("vgg mixed", 1)):
        assert seeds.pop(f"accuracy {name}") == trainings
    assert seeds == dict.fromkeys(
        ["resnet", "mixed", "lstm", "transformer", "transformer uneven", "vgg", "accuracy", "even"],
        5,
    )
    assert {HOROVOD, RNA, EAGER, ADPSGD} == set(planned[0].methods)
    quick = jobs(Options(quick=True))
    assert len(quick) == 1 and len(quick[0].case.ranks) == 2


@pytest.mark.soak  # a whole bench in a lab, which takes minutes
@needs_lab
@pytest.mark.timeout(300)
def test_quick_run_measures(tmp_path: Path) -> None:
    path = tmp_path / "rna.json"
    done = subprocess.run(
        [TREPAK, "bench", "rna", "--quick", "--json", str(path)],
        capture_output=True,
        text=True,
        stdin=subprocess.DEVNULL,
        timeout=280,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    report = json.loads(path.read_text())
    (case,) = [row for row in report["rows"] if row["kind"] == comparison.CASES]
    rows = {row["way"]: row for row in report["rows"] if row["kind"] == comparison.TRAININGS}
    assert set(rows) == {HOROVOD, RNA}
    for row in rows.values():
        assert row["steps_of_a_rank"] == pytest.approx(24, abs=4)  # two epochs of 12
        assert row["drawn_ms"] == pytest.approx(350, rel=0.25)
        # A loaded machine computes for longer, and steps may be a little shorter than drawn.
        assert 0.9 <= row["computed_ms"] / row["drawn_ms"] <= 1.5
    assert rows[HOROVOD]["step_ms"] >= 0.8 * case["step_ms"]
    assert rows[RNA]["step_ms"] < rows[HOROVOD]["step_ms"]
    assert rows[RNA]["rounds_per_s"] > 0 and rows[HOROVOD]["rounds_per_s"] == 0
    assert path.with_suffix(".png").exists()

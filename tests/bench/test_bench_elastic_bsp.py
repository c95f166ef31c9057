"""What `trepak bench elastic_bsp` makes of its measurements."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest
from matplotlib.figure import Figure
from test_lab import TREPAK, needs_lab

from trepak.scripts.bench import elastic_bsp_figures, elastic_bsp_report
from trepak.scripts.bench.bench_elastic_bsp import jobs
from trepak.scripts.bench.elastic_bsp_cases import (
    ALL_METHODS,
    ELASTIC,
    LOOKAHEADS,
    SERVED_BSP,
    cases,
)
from trepak.scripts.bench.elastic_bsp_simulations import of_runs
from trepak.scripts.bench.uneven import comparison
from trepak.scripts.bench.uneven.methods import ASP, HOROVOD, SSP
from trepak.scripts.bench.uneven.tasks import task
from trepak.scripts.report import Options

PACES = {HOROVOD: 1.4, SSP: 1.35, ASP: 1.0} | dict.fromkeys(ELASTIC, 1.0) | {SERVED_BSP: 1.3}


def run(
    method: str, seed: int, pace: float, size: int = 4, accuracy: float = 0.95
) -> dict[str, Any]:
    """Returns a training that takes 50 s times `pace`."""
    curve = [(pace * 25.0, 0.5, min(0.6, accuracy)), (pace * 50.0, 0.2, accuracy)]
    figures: dict[str, float] = {}
    if method != HOROVOD:
        figures = {"waiting_s": 0.5, "exchange_s": 1.0}
    if method in (*ELASTIC, SERVED_BSP):
        figures |= {
            "planned_barriers": 10,
            "planned_waiting": 1.9,
            "planned_predictions": 100,
            "planned_error": 3.0,
            "planned_planning": 0.01,
            "planned_predicted_waits": 0.2,
            "planned_longest_waits": 0.3,
        }
    ranks = []
    for rank in range(size):
        of_rank: dict[str, Any] = {
            "curve": curve,
            "steps": 256,
            "drawn_s": 40.0,
            "computed_s": 41.0,
            "own_ms": 4.0,
            "final_accuracy": accuracy,
            "rounds": {},
            "figures": figures if rank == 0 else {**figures, "planned_barriers": 0},
            "synchronized": [0.01 + 0.02 * (size - 1 - rank)] * 256,
            "recorded": [],
            "idle": 0.6,
            "stolen": 0.0,
        }
        if rank == 0:
            of_rank["recorded"] = [
                [worker, 0.1 * i, 0.1 * (1 + worker), 0.0] for i in range(8) for worker in range(4)
            ]
        ranks.append(of_rank)
    return {"way": method, "seed": seed, "ranks": ranks}


def report_of(paces: dict[str, float], **more: Any) -> Any:
    measured = [
        (
            case,
            [
                run(method, seed, pace, len(case.ranks), **more)
                for seed in range(3)
                for method, pace in paces.items()
                if method in case.methods
            ],
        )
        for case in cases()
    ]
    return elastic_bsp_report.summarize(measured, {})


def test_claims_are_about_the_worst_case() -> None:
    report = report_of(PACES)
    claims = {name: claim.value for name, claim in report.claims.items()}
    assert claims["elastic_bsp.time_to_accuracy_vs_bsp"] == pytest.approx(1.4)
    bound = 2.0 * (1 + 1 / 1.25 + 1 / 1.6 + 1 / 2) / 4
    assert claims["elastic_bsp.fraction_of_bound"] == pytest.approx(1.4 / bound, rel=0.01)
    assert claims["elastic_bsp.fraction_of_larger_bound"] < 1.4 / bound
    assert claims["elastic_bsp.final_accuracy_gap"] == pytest.approx(0.0)
    # 0.5 s each, where they wait 0, 20, 40 and 60 ms for the last in each step of BSP.
    assert claims["elastic_bsp.waiting_vs_bsp"] == pytest.approx(2.0 / (0.12 * 256))
    assert claims["elastic_bsp.scheduler_overhead"] == pytest.approx(0.01 / 50)
    assert claims["elastic_bsp.simulated_waiting_error"] > 0
    found = [row for row in report.rows if row["kind"] == elastic_bsp_report.METHODS]
    # Horovod's ranks end a step every 70 s / 256, far more than the emulated ones compute.
    for row in found:
        assert row["fraction_of_larger_bound"] < row["fraction_of_bound"], row
    json.loads(report.to_json())
    (alexnet, *_) = [row for row in report.rows if row["kind"] == elastic_bsp_report.ORDERS]
    assert alexnet["order"].endswith(f"{SSP}, {HOROVOD}")
    assert alexnet["paper"].startswith(SSP)


def uneven_steps() -> list[list[float]]:
    """Returns what is recorded of four ranks whose steps never end together."""
    steps = []
    for rank in range(4):
        end = 0.0
        for number in range(60):
            took = 0.1 + 0.037 * rank + 0.01 * ((7 * number + 3 * rank) % 5)
            end += took
            steps.append([rank, end, took, 0.0])
    return sorted(steps, key=lambda step: step[1])


def test_a_simulation_is_off_by_what_it_says_more_than_was_waited() -> None:
    training = run(ELASTIC[0], 0, 1.0)
    first = training["ranks"][0]
    figures = first["figures"]
    first["recorded"] = uneven_steps()
    for share in (1.0, 1.25, 0.8):
        (row,) = of_runs([(cases()[0], [training])])
        assert row["simulated_s"] > 0.1
        figures["planned_waiting"] = row["simulated_s"] / share
        (row,) = of_runs([(cases()[0], [training])])
        assert row["error"] == pytest.approx(share - 1)


def test_eight_ranks_count_too() -> None:
    measured = [
        (case, [run(method, 0, pace, len(case.ranks)) for method, pace in PACES.items()])
        for case in cases()
    ]
    eight = measured[-1]
    assert len(eight[0].ranks) == 8
    eight[1][:] = [run(HOROVOD, 0, 1.1, 8), run(ELASTIC[0], 0, 1.0, 8)]
    claims = elastic_bsp_report.summarize(measured, {}).claims
    assert claims["elastic_bsp.time_to_accuracy_vs_bsp"].value == pytest.approx(1.1)


@pytest.mark.parametrize("worse", ["alexnet", "resnet", "alexnet on 8", "resnet on 8"])
def test_every_case_counts_for_the_gap_of_accuracies(worse: str) -> None:
    measured = []
    for case in cases():
        ours = 0.94 if case.name == worse else 0.95
        runs = [
            run(HOROVOD, 0, 1.4, len(case.ranks)),
            run(ELASTIC[0], 0, 1.0, len(case.ranks), ours),
        ]
        measured.append((case, runs))
    claims = elastic_bsp_report.summarize(measured, {}).claims
    assert claims["elastic_bsp.final_accuracy_gap"].value == pytest.approx(1.0)


def test_who_never_reaches_the_accuracy_has_gained_nothing() -> None:
    report = report_of(PACES, accuracy=0.5)
    assert report.claims["elastic_bsp.time_to_accuracy_vs_bsp"].value == 0.0
    json.loads(report.to_json())


def test_trials_that_never_reach_the_accuracy_are_not_left_out() -> None:
    case = cases()[0]
    runs = [run(HOROVOD, seed, 1.4) for seed in range(3)]
    runs += [run(ELASTIC[0], seed, 1.0, accuracy=0.95 if seed == 0 else 0.5) for seed in range(3)]
    report = elastic_bsp_report.summarize([(case, runs)], {})
    (ours,) = [
        row
        for row in report.rows
        if row["kind"] == elastic_bsp_report.METHODS and row["way"] == ELASTIC[0]
    ]
    assert ours["seconds_to_accuracy"] is None and ours["time_to_accuracy"] == 0.0


def test_figures_are_drawn_of_every_case() -> None:
    figure = Figure()
    elastic_bsp_figures.draw(report_of(PACES), figure)
    titles = {axes.get_title() for axes in figure.axes}
    assert {case.name for case in cases()} <= titles
    elastic_bsp_figures.draw(report_of({HOROVOD: 1.0, ELASTIC[0]: 1.0}), Figure())


def test_bounds_follow_from_the_speeds() -> None:
    for case in cases():
        slowest = case.step_ms() - case.exchange_ms
        assert case.bound(slowest) == pytest.approx(1.4625, rel=0.02)
        assert task(case.task).build().count_params() == case.parameters


def test_all_ways_have_three_trials() -> None:
    planned = {one.name: one for one in jobs(Options())}
    assert list(planned) == ["alexnet", "resnet", "alexnet on 8", "resnet on 8"]
    for name, one in planned.items():
        assert tuple(one.methods) == ALL_METHODS and len(one.seeds) == 3
        assert len(one.case.ranks) == (8 if name.endswith("8") else 4)
    assert len(LOOKAHEADS) == 5


def test_an_epoch_is_longer_than_the_longest_lookahead() -> None:
    for case in cases():
        times = [one.compute for one in case.ranks]
        share = 1 / min(times) / sum(1 / time for time in times)  # of all steps, the fastest's
        assert share * case.epoch_steps * len(times) > max(LOOKAHEADS)


@pytest.mark.soak  # a whole bench in a lab, which takes minutes
@needs_lab
@pytest.mark.timeout(300)
def test_quick_run_measures(tmp_path: Path) -> None:
    path = tmp_path / "elastic_bsp.json"
    done = subprocess.run(
        [TREPAK, "bench", "elastic_bsp", "--quick", "--json", str(path)],
        capture_output=True,
        text=True,
        stdin=subprocess.DEVNULL,
        timeout=280,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    rows = json.loads(path.read_text())["rows"]
    of = {row["way"]: row for row in rows if row["kind"] == comparison.TRAININGS}
    assert set(of) == {HOROVOD, ELASTIC[0]}
    ours, theirs = of[ELASTIC[0]], of[HOROVOD]
    assert ours["steps"] == pytest.approx(160, abs=10)
    assert ours["barriers"] >= 2 and ours["prediction_error"] < 1
    assert ours["waiting_ms_per_step"] < theirs["waiting_ms_per_step"]
    assert ours["steps_per_s"] > theirs["steps_per_s"]

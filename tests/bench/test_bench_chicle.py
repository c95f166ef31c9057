"""What `trepak bench chicle` makes of its trainings."""

from __future__ import annotations

import json
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from matplotlib.figure import Figure
from test_lab import TREPAK, why_impossible

from trepak.scripts.bench import bench_chicle, chicle_report
from trepak.scripts.bench.chicle_cases import CASES, PARALLELISM, SCENARIOS, Case
from trepak.scripts.bench.chicle_report import Found
from trepak.scripts.bench.chicle_trainings import UNI, Curve, micro, projected

SCALE_IN, SCALE_OUT, UNEVEN = SCENARIOS
TIMED = {f"chicle.cocoa_vs_liblinear_time.{name}" for name in ("higgs", "criteo")}
IN_A_LAB = {
    "chicle.balanced_iteration_vs_ideal.lab.cocoa",
    "chicle.balanced_iteration_vs_ideal.lab.local_sgd",
    "chicle.rigid_overhead",
    "chicle.cocoa_speedup_4_ranks.higgs",
}


def curve(iterations: int, goal: float, seconds: float = 1.0) -> Curve:
    """Returns one that comes to the goal after so many iterations, evenly."""
    along = tuple(range(iterations + 1))
    values = tuple(goal ** (number / iterations) for number in along)
    return Curve(along, tuple(seconds * one for one in along), values)


def found_of(case: Case, trials: int = 2) -> Found:
    """Returns trainings of which K tasks take K iterations, and uni-tasks 10 of 20 s each."""
    fixed = [{tasks: curve(tasks, case.goal) for tasks in PARALLELISM} for _ in range(trials)]
    uni = {one.name: [curve(10, case.goal, 20.0)] * trials for one in SCENARIOS}
    units = {one.name: {5.0: curve(10, case.goal, 8.0)} for one in SCENARIOS[:2]}
    balance: dict[str, Any] = {
        **{"chunks": 917, "first_iteration": 2.1, "after": 10, "then": 1.2, "ideal": 1.2},
        "iterations": [2.1, 1.2],
    }
    worse = [{**balance, "vs_ideal": 1 + 0.01 * trial} for trial in range(trials)]
    return Found(case, fixed, uni, units, worse)


def test_the_goal_is_between_two_iterations() -> None:
    falling = Curve((0, 1, 2), (0, 10, 30), (1.0, 1e-2, 1e-4))
    assert falling.until(1e-3, falling.epochs) == pytest.approx(1.5)
    assert falling.until(1e-3, falling.seconds) == pytest.approx(20)
    assert falling.until(1.0, falling.seconds) == 0
    assert falling.until(1e-5, falling.seconds) == float("inf")


@pytest.mark.parametrize(
    ("scenario", "tasks", "units"),
    [
        (SCALE_IN, 16, (1, 1, 2, 2, 2)),  # at 0, 10, 20, 40 and 60 s: on 16, 16, 14, 12, 10 nodes
        (SCALE_IN, 64, (1, 1, 1.25, 1.25, 1.5)),  # on 16, 16, 14, 14 and 12 nodes
        (SCALE_OUT, 16, (8, 2, 2, 2, 1)),  # on 2, 10, 12, 14 and 16 nodes
        (UNEVEN, 24, (4 / 3,) * 5),
        (UNEVEN, 64, (1.25,) * 5),
    ],
)
def test_times_are_those_of_task_waves(scenario: Any, tasks: int, units: Any) -> None:
    case = replace(CASES[0], unit=10.0)
    seconds = projected(case, curve(5, case.goal), scenario, tasks).seconds
    lengths = [after - before for before, after in zip(seconds, seconds[1:], strict=False)]
    assert lengths == pytest.approx([10 * one for one in units])


@pytest.mark.parametrize(
    ("scenario", "tasks", "units"),
    [
        (SCALE_IN, 16, (1, 1, 2, 2, 2)),  # on 16, 16, 14, 12 and 10 nodes
        (SCALE_IN, 64, (4, 6, 11, 32, 32)),  # at 0, 40, 100 and 210 s: on 16, 12, 6 and 2 nodes
        (UNEVEN, 24, (2,) * 5),
        (UNEVEN, 64, (5,) * 5),
    ],
)
def test_more_micro_tasks_bring_more_batches(scenario: Any, tasks: int, units: Any) -> None:
    case = replace(CASES[2], unit=10.0)
    assert case.algorithm == "local_sgd"
    seconds = projected(case, curve(5, case.goal), scenario, tasks).seconds
    lengths = [after - before for before, after in zip(seconds, seconds[1:], strict=False)]
    assert lengths == pytest.approx([10 * one for one in units])


def test_claims_are_ratios_of_means() -> None:
    report = chicle_report.summarize([found_of(case) for case in CASES], {})
    claims = {name: claim.value for name, claim in report.claims.items()}
    assert claims["chicle.epochs_growth_16_to_32.cocoa.criteo"] == pytest.approx(1.0)
    assert report.claims["chicle.epochs_growth_16_to_32.local_sgd.cifar"].paper == 0.44
    assert claims["chicle.epochs_growth_off_the_papers"] == pytest.approx(0.35)
    assert claims["chicle.epochs_vs_microtasks64_cocoa"] == pytest.approx(10 / 64)
    assert claims["chicle.balanced_iteration_vs_ideal"] == pytest.approx(1.01)
    # 16 iterations of 1.5 units of 10 s each.
    name = "chicle.time_to_goal_vs_best_microtasks.cocoa.higgs.uneven"
    assert claims[name] == pytest.approx(200 / 240)
    assert len([name for name in claims if "time_to_goal" in name]) == 3 * len(CASES)
    json.loads(report.to_json())
    rows = [row for row in report.rows if row["kind"] == chicle_report.TO_GOAL]
    assert {row["way"] for row in rows} == {UNI, *(micro(tasks) for tasks in (16, 24, 32, 64))}
    figure = Figure()
    bench_chicle.draw(report, figure)
    assert len(figure.axes) == 4 * 2 * len(CASES)


def test_uni_tasks_that_are_never_at_the_goal_are_an_error() -> None:
    found = found_of(CASES[0])
    found.uni["scale_in"] = [curve(10, 2 * CASES[0].goal)] * 2
    with pytest.raises(RuntimeError, match="not at the goal"):
        chicle_report.summarize([found], {})


def test_quick_run_measures(tmp_path: Path) -> None:
    path = tmp_path / "chicle.json"
    command = [TREPAK, "bench", "chicle", "--quick", "--json", str(path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=480)
    assert done.returncode == 0, done.stdout + done.stderr
    report = json.loads(path.read_text())
    by_tasks = [row for row in report["rows"] if row["kind"] == chicle_report.EPOCHS]
    assert len(by_tasks) == len(CASES)
    assert all(0 < row["tasks_16"] < row["tasks_64"] for row in by_tasks)
    to_goal = [row for row in report["rows"] if row["kind"] == chicle_report.TO_GOAL]
    assert len(to_goal) == 3 * len(CASES)
    for row in to_goal:
        assert row["seconds"] > 0 and row["epochs"] > 0, row
    assert report["claims"]["chicle.balanced_iteration_vs_ideal"]["value"] < 1.05
    assert TIMED | (set() if why_impossible() else IN_A_LAB) <= set(report["claims"])
    assert report["claims"]["chicle.scale_event_pause"]["value"] > 0
    assert path.with_suffix(".png").exists()

"""What `trepak bench chicle` reports and claims of its trainings."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from trepak.scripts.bench.chicle_cases import ALGORITHMS, MICRO_TASKS, SCENARIOS, Case, Scenario
from trepak.scripts.bench.chicle_trainings import UNI, Curve, micro, projected
from trepak.scripts.report import Claims, Report

# Kinds of rows; figures are means of the trials.
EPOCHS = "epochs to the goal by tasks (Figures 1a, 1b)"
TO_GOAL = "epochs and seconds to the goal (Figures 4, 5, 9, 10)"
UNITS = "seconds to the goal with other time units, the first trial"
BALANCE = "time units of an iteration, 4 of 16 nodes slowed"
BALANCING = "the same, by iteration, the worst trial"
CURVES = "what was reached, by epochs and seconds, the first trial"

# From 16 tasks to 32 (Figure 1b), and from a batch of 256 to 512 (Figure 1a).
_PAPERS_GROWTH = {"criteo": 0.65, "cifar": 0.44}
_MOST_OFF = 0.15


@dataclass
class Found:
    """What a case's trials have shown, by trial.

    Attributes:
        case: which one.
        fixed: by trial, by number of tasks, the curve with as many.
        uni: by scenario, by trial, the curve of uni-tasks.
        other_units: by scenario, by seconds of a time unit, the curve of the first trial.
        balance: by trial; see `balancing`.
    """

    case: Case
    fixed: list[dict[int, Curve]] = field(default_factory=list)
    uni: dict[str, list[Curve]] = field(default_factory=dict)
    other_units: dict[str, dict[float, Curve]] = field(default_factory=dict)
    balance: list[dict[str, Any]] = field(default_factory=list)

    @property
    def scenarios(self) -> list[Scenario]:
        """Those that were trained in."""
        return [one for one in SCENARIOS if one.name in self.uni]

    @property
    def about(self) -> dict[str, str]:
        """What all rows of the case begin with."""
        return {"algorithm": self.case.algorithm, "data_set": self.case.name}


def summarize(found: Sequence[Found], environment: Mapping[str, Any]) -> Report:
    """Returns the report.

    Raises:
        RuntimeError: uni-tasks have not come to the goal.
    """
    to_goal = [row for one in found for row in _to_goal(one)]
    epochs = [_epochs(one) for one in found]
    worst = [(one, _worst(one)) for one in found if one.balance]
    balance = [{"kind": BALANCE, **one.about, **about} for one, (about, _) in worst]
    claims = Claims()
    _claim_epochs(claims, epochs, to_goal)
    _claim_times(claims, to_goal)
    of_ideal = max((row["vs_ideal"] for row in balance), default=None)
    name = "chicle.balanced_iteration_vs_ideal"
    claims.add(name, of_ideal, 1.05, "lower", emulated=False)
    rows = [
        *epochs,
        *to_goal,
        *(row for one in found for row in _other_units(one)),
        *balance,
        *(
            {"kind": BALANCING, **one.about, "iteration": number, "units": units}
            for one, (_, iterations) in worst
            for number, units in enumerate(iterations)
        ),
        *(row for one in found for row in _curves(one)),
    ]
    return Report("chicle", claims, rows, environment, unprinted=(BALANCING, CURVES))


def _finite(number: float) -> float | None:
    return number if math.isfinite(number) else None


def _epochs(found: Found) -> dict[str, Any]:
    case = found.case
    trials = [
        {tasks: one.until(case.goal, one.epochs) for tasks, one in curves.items()}
        for curves in found.fixed
    ]
    means = {tasks: statistics.mean(one[tasks] for one in trials) for tasks in trials[0]}
    growths: list[float] = []
    if {16, 32} <= means.keys():
        growths = [one[32] / one[16] - 1 for one in (means, *trials)]
    return {
        "kind": EPOCHS,
        **found.about,
        "goal": case.goal,
        "batch_of_16": case.usual if case.usual < case.samples else None,
        **{f"tasks_{tasks}": _finite(epochs) for tasks, epochs in means.items()},
        "growth_16_to_32": _finite(growths[0]) if growths else None,
        "least_growth": _finite(min(growths)) if growths else None,
        "most_growth": _finite(max(growths)) if growths else None,
    }


def _to_goal(found: Found) -> list[dict[str, Any]]:
    """Returns a row for each scenario and way."""
    case, rows = found.case, []
    for scenario in found.scenarios:
        ways = {UNI: found.uni[scenario.name]}
        for tasks in found.fixed[0]:
            if tasks in MICRO_TASKS:
                curves = [projected(case, one[tasks], scenario, tasks) for one in found.fixed]
                ways[micro(tasks)] = curves
        for way, curves in ways.items():
            epochs = statistics.mean(one.until(case.goal, one.epochs) for one in curves)
            trials = [one.until(case.goal, one.seconds) for one in curves]
            seconds = statistics.mean(trials)
            rows.append(
                {
                    "kind": TO_GOAL,
                    **found.about,
                    "scenario": scenario.name,
                    "way": way,
                    "epochs": _finite(epochs),
                    "seconds": _finite(seconds),
                    "least": _finite(min(trials)),
                    "most": _finite(max(trials)),
                    "nodes_then": scenario.nodes_at(seconds),
                }
            )
    return rows


def _other_units(found: Found) -> list[dict[str, Any]]:
    """Returns how the ratio to the best micro-tasks depends on how long a time unit is."""
    rows = []
    for scenario in found.scenarios:
        by_unit = found.other_units.get(scenario.name, {})
        for unit, curve in by_unit.items():
            case = replace(found.case, unit=unit)
            ours = curve.until(case.goal, curve.seconds)
            theirs = {
                tasks: projected(case, one, scenario, tasks)
                for tasks, one in found.fixed[0].items()
                if tasks in MICRO_TASKS
            }
            best = min(one.until(case.goal, one.seconds) for one in theirs.values())
            rows.append(
                {
                    "kind": UNITS,
                    **found.about,
                    "scenario": scenario.name,
                    "unit_s": unit,
                    "uni_tasks": _finite(ours),
                    "best_micro_tasks": _finite(best),
                    "ratio": _finite(ours / best),
                }
            )
    return rows


def _worst(found: Found) -> tuple[dict[str, Any], list[float]]:
    """Returns what the worst trial of balancing has come to, and its iterations."""
    worst = dict(max(found.balance, key=lambda trial: float(trial["vs_ideal"])))
    return worst, worst.pop("iterations")


def _curves(found: Found) -> list[dict[str, Any]]:
    case, rows = found.case, []
    for scenario in found.scenarios:
        ways = {UNI: found.uni[scenario.name][0]}
        for tasks, curve in found.fixed[0].items():
            if tasks in MICRO_TASKS:
                ways[micro(tasks)] = projected(case, curve, scenario, tasks)
        rows += [
            {
                "kind": CURVES,
                **found.about,
                "scenario": scenario.name,
                "way": way,
                "value": ALGORITHMS[case.algorithm].value,
                "goal": case.goal,
                "curve": list(zip(curve.epochs, curve.seconds, curve.values, strict=True)),
            }
            for way, curve in ways.items()
        ]
    return rows


def _ratio(ours: float | None, theirs: float | None) -> float | None:
    """Returns what uni-tasks need of what micro-tasks do; None: these are never at the goal."""
    if ours is None:
        raise RuntimeError("uni-tasks were not at the goal after the most iterations of their case")
    return None if theirs is None else ours / theirs


def _claim_epochs(
    claims: Claims, epochs: Sequence[Mapping[str, Any]], to_goal: Sequence[Mapping[str, Any]]
) -> None:
    for row in epochs:
        growth, name = row["growth_16_to_32"], f"{row['algorithm']}.{row['data_set']}"
        if growth is not None:
            paper = _PAPERS_GROWTH.get(row["data_set"])
            full = f"chicle.epochs_growth_16_to_32.{name}"
            claims.add(full, growth, None, "lower", "share", paper, emulated=False)
            if row["data_set"] == "criteo":
                off = abs(growth - _PAPERS_GROWTH["criteo"])
                full = "chicle.epochs_growth_off_the_papers"
                claims.add(full, off, _MOST_OFF, "lower", "share", emulated=False)
    of = {
        row["way"]: row["epochs"]
        for row in to_goal
        if (row["algorithm"], row["data_set"], row["scenario"]) == ("cocoa", "criteo", "scale_in")
    }
    if micro(64) in of:
        ratio = _ratio(of[UNI], of[micro(64)])
        claims.add("chicle.epochs_vs_microtasks64_cocoa", ratio, 0.5, "lower", emulated=False)


def _claim_times(claims: Claims, to_goal: Sequence[Mapping[str, Any]]) -> None:
    keys = ("algorithm", "data_set", "scenario")
    for of in dict.fromkeys(tuple(row[key] for key in keys) for row in to_goal):
        rows = [row for row in to_goal if tuple(row[key] for key in keys) == of]
        seconds = {row["way"]: row["seconds"] for row in rows}
        ours = seconds.pop(UNI)
        best = min((one for one in seconds.values() if one is not None), default=None)
        name = f"chicle.time_to_goal_vs_best_microtasks.{'.'.join(of)}"
        most = ALGORITHMS[of[0]].most_of_best
        claims.add(name, _ratio(ours, best), most, "lower", emulated=False)

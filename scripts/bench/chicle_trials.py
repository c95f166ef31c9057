"""The trials of `trepak bench chicle`: which trainings each case has."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from trepak.scripts.bench.chicle_cases import (
    ALGORITHMS,
    OTHER_UNITS,
    PARALLELISM,
    SCENARIOS,
    SEEDS,
    Case,
    Trial,
)
from trepak.scripts.bench.chicle_report import Found
from trepak.scripts.bench.chicle_trainings import balancing, micro_tasks, uni_tasks

_QUICK_PARALLELISM = (16, 64)


def find_quickly(case: Case, show: Callable[[str], None]) -> Found:
    """Trains a few samples of a case to a goal that is near, scaled in; see `find`."""
    show(f"{case.algorithm}, {case.name}")
    case = replace(case, **ALGORITHMS[case.algorithm].quick)
    trial = Trial(case, case.drawn(), 0)
    fixed = {tasks: micro_tasks(trial, tasks) for tasks in _QUICK_PARALLELISM}
    uni = {one.name: [uni_tasks(trial, one)] for one in SCENARIOS[:1]}
    return Found(case, [fixed], uni, balance=[balancing(trial)])


def find(case: Case, show: Callable[[str], None]) -> Found:
    """Trains a case with every number of tasks, and in every scenario.

    Args:
        case: which one.
        show: is told what is under way.
    """
    samples = case.drawn()
    found = Found(case, uni={one.name: [] for one in SCENARIOS})
    for seed in SEEDS:
        trial, what = Trial(case, samples, seed), f"{case.algorithm}, {case.name}, seed {seed}"
        fixed = {}
        for tasks in PARALLELISM:
            show(f"{what}: {tasks} tasks")
            fixed[tasks] = micro_tasks(trial, tasks)
        found.fixed.append(fixed)
        for scenario in SCENARIOS:
            show(f"{what}: uni-tasks, {scenario.name}")
            found.uni[scenario.name].append(uni_tasks(trial, scenario))
        found.balance.append(balancing(trial))
    for scenario in SCENARIOS[:2]:  # the others' ratios are the same with any unit
        show(f"{case.algorithm}, {case.name}: other time units, {scenario.name}")
        found.other_units[scenario.name] = {
            unit: uni_tasks(Trial(replace(case, unit=unit), samples, SEEDS[0]), scenario)
            for unit in (part * case.unit for part in OTHER_UNITS)
        }
    return found

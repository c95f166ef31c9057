"""What `trepak bench elastic_bsp` reports and claims of what it has measured."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from trepak.scripts.bench import elastic_bsp_simulations as simulations
from trepak.scripts.bench.elastic_bsp_cases import SERVED_BSP
from trepak.scripts.bench.uneven import comparison
from trepak.scripts.bench.uneven.cases import Case
from trepak.scripts.bench.uneven.comparison import (
    Measured,
    Row,
    compare,
    finite,
    methods_of,
    paired,
    seconds_until,
)
from trepak.scripts.bench.uneven.methods import ASP, HOROVOD, SSP, elastic_bsp
from trepak.scripts.bench.uneven.trainings import Run
from trepak.scripts.report import Claims, Report

# Kinds of rows.
METHODS = "medians of the trials"
TARGETS = "gain in time to other accuracies, median of the trials"
ORDERS = "who ends first (section V-B)"
CURVES = "seconds, held-out loss and accuracy of what was kept"

_DEFAULT = elastic_bsp(15)  # what the claims are about
_OTHER_TARGETS = (0.5, 0.6, 0.7, 0.75, 0.8, 0.84, 0.9, 0.95)
# In which order the methods end a fixed number of epochs in the paper, by case (section V-B); it
# gives no times, and of ElasticBSP's lookaheads with AlexNet only these two.
_FINISHING_ORDERS = {
    "alexnet": (SSP, ASP, elastic_bsp(15), elastic_bsp(30), HOROVOD),
    "resnet": (elastic_bsp(15), HOROVOD, SSP, ASP),
}


def waiting_of(run: Run) -> float:
    """Returns the seconds that all ranks together waited for others.

    Where ranks end each step together, the one that came last waits least, and what another one
    takes more than that, it has waited.
    """
    if run["way"] != HOROVOD:
        return float(sum(rank["figures"]["waiting_s"] for rank in run["ranks"]))
    steps = min(len(rank["synchronized"]) for rank in run["ranks"])
    times = np.array([rank["synchronized"][-steps:] for rank in run["ranks"]])
    return float((times - times.min(axis=0)).sum())


def row_of(case: Case, run: Run) -> dict[str, Any]:
    """Returns one training as a row."""
    row = comparison.training_of(case, run)
    ranks, first = run["ranks"], run["ranks"][0]
    curve, figures = first["curve"], first["figures"]
    seconds, steps = row["seconds"], row["steps"]
    exchanging = sum(rank["figures"].get("exchange_s", 0.0) for rank in ranks)
    barriers = figures.get("planned_barriers", 0)
    predictions = figures.get("planned_predictions", 0)
    until = seconds_until(curve, case.target_accuracy or 0.0)
    return row | {
        "seconds_to_accuracy": finite(until),
        "steps_to_accuracy": finite(steps * until / seconds),
        "final_accuracy": first["final_accuracy"],
        "final_loss": finite(curve[-1][1]),
        "steps_per_s": steps / seconds,
        "waiting_ms_per_step": 1000 * waiting_of(run) / steps,
        "exchange_ms_per_step": 1000 * exchanging / steps,
        "barriers": barriers,
        "steps_per_barrier": steps / len(ranks) / barriers if barriers else None,
        "predicted_waits_s": figures.get("planned_predicted_waits", 0.0),
        "longest_waits_s": figures.get("planned_longest_waits", 0.0),
        "prediction_error": figures["planned_error"] / predictions if predictions else None,
        "scheduler_share": figures.get("planned_planning", 0.0) / seconds,
    }


def curve_of(case: Case, run: Run) -> dict[str, Any]:
    """Returns one training's curve as a row."""
    final = run["ranks"][0]["final_accuracy"]
    return comparison.curve_of(CURVES, case, run, final_accuracy=final, target=case.target_accuracy)


def row_of_case(case: Case, rows: Sequence[Row]) -> dict[str, Any]:
    """Returns what a case is, and the most that its ranks could gain, as a row.

    `bound` is max(T) · mean(1/T) of computing times T: as if nothing were exchanged. What Horovod's
    steps take longer than that can be gained too: `larger_bound` is of what they took.
    """
    of_ranks = {"ranks": len(case.ranks), "target_accuracy": case.target_accuracy}
    row = comparison.case_of(case, rows, **of_ranks)
    slowest, measured = case.step_ms() - case.exchange_ms, row["measured_step_ms"]
    return row | {
        "bound": case.bound(slowest),
        "larger_bound": None if measured is None else case.bound(max(slowest, measured)),
    }


def medians_of(case: Row, method: str, rows: Sequence[Row]) -> dict[str, Any]:
    """Returns medians of a method's trials, and gains over Horovod's, as a row."""
    name = case["case"]
    ours = [row for row, _ in paired(rows, name, method, HOROVOD)]

    def median(figure: str) -> float | None:
        # A trial without it, as it never came to the accuracy, is last.
        values = [math.inf if row[figure] is None else row[figure] for row in ours]
        return finite(float(statistics.median(values)))

    def gained(over: str) -> float | None:
        return compare(rows, name, method, over, lambda a, b: a["steps_per_s"] / b["steps_per_s"])

    def waiting(a: Row, b: Row) -> float:
        return float(a["waiting_ms_per_step"] / max(b["waiting_ms_per_step"], 1e-9))

    def sooner(a: Row, b: Row) -> float:
        return comparison.sooner(a, b, "seconds_to_accuracy")

    faster = gained(HOROVOD) or 0.0
    return {
        "kind": METHODS,
        "case": name,
        "way": method,
        "seconds": median("seconds"),
        "seconds_to_accuracy": median("seconds_to_accuracy"),
        "time_to_accuracy": compare(rows, name, method, HOROVOD, sooner),
        "steps_until_then": median("steps_to_accuracy"),
        "steps_per_s": faster,
        "steps_per_s_vs_served_bsp": gained(SERVED_BSP),
        "bound": case["bound"],
        "fraction_of_bound": faster / case["bound"],
        "fraction_of_larger_bound": faster / case["larger_bound"],
        "final_accuracy": median("final_accuracy"),
        "waiting_ms_per_step": median("waiting_ms_per_step"),
        "waiting_vs_bsp": compare(rows, name, method, HOROVOD, waiting),
        "steps_per_barrier": median("steps_per_barrier"),
        "prediction_error": median("prediction_error"),
        "scheduler_share": median("scheduler_share"),
    }


def orders(found: Sequence[Row]) -> list[dict[str, Any]]:
    """Returns for each case in which order its methods have ended the same number of samples."""
    by_end = sorted(found, key=lambda row: row["seconds"])
    return [
        {
            "kind": ORDERS,
            "case": case,
            "order": ", ".join(methods_of(by_end, case)),
            "paper": ", ".join(_FINISHING_ORDERS.get(case, ())),
        }
        for case in dict.fromkeys(row["case"] for row in found)
    ]


def by_target(curves: Sequence[Row]) -> list[dict[str, Any]]:
    """Returns gains in time to other accuracies than the targets: how much these matter."""
    found = []
    for case in dict.fromkeys(row["case"] for row in curves):
        for method in methods_of(curves, case):
            if method == HOROVOD:
                continue
            row: dict[str, Any] = {"kind": TARGETS, "case": case, "way": method}
            pairs = paired(curves, case, method, HOROVOD)
            for accuracy in _OTHER_TARGETS:
                times = [[seconds_until(one["curve"], accuracy) for one in pair] for pair in pairs]
                reached = times and all(math.isfinite(seconds) for seconds in sum(times, []))
                gains = [theirs / ours for ours, theirs in times if reached]
                row[f"to_{accuracy:g}"] = statistics.median(gains) if gains else None
            found.append(row)
    return found


def claims_of(found: Sequence[Row], simulated: Sequence[Row]) -> Claims:
    """Returns what the bench claims: of all cases, the one that is worst for us."""
    of = {(row["case"], row["way"]): row for row in found}
    cases = dict.fromkeys(case for case, _ in of)
    names = [case for case in cases if {(case, HOROVOD), (case, _DEFAULT)} <= of.keys()]
    ours = [of[name, _DEFAULT] for name in names]
    claims = Claims()

    def gap(name: str) -> float:
        """Returns by how many points ElasticBSP's accuracy is below the best of the others'."""
        there = [of[name, method] for method in (HOROVOD, SSP, ASP) if (name, method) in of]
        best = max(row["final_accuracy"] for row in there)
        return float(100 * (best - of[name, _DEFAULT]["final_accuracy"]))

    def least(figure: str) -> float:
        return min(row[figure] for row in ours)

    def error(figure: str) -> float | None:
        errors = [row[figure] for row in simulated if row["way"] == _DEFAULT]
        return max((abs(one) for one in errors if one is not None), default=None)

    if ours:
        waited = max(row["waiting_vs_bsp"] for row in ours)
        planning = max(row["scheduler_share"] for row in found)
        claims.add("elastic_bsp.time_to_accuracy_vs_bsp", least("time_to_accuracy"), 1.3)
        claims.add("elastic_bsp.fraction_of_bound", least("fraction_of_bound"), 0.9, unit="share")
        larger = least("fraction_of_larger_bound")
        claims.add("elastic_bsp.fraction_of_larger_bound", larger, None, unit="share")
        claims.add("elastic_bsp.final_accuracy_gap", max(map(gap, names)), 0.3, "lower", "points")
        claims.add("elastic_bsp.waiting_vs_bsp", waited, 0.2, "lower")
        claims.add(
            "elastic_bsp.scheduler_overhead", planning, 0.01, "lower", "share", emulated=False
        )
    claims.add("elastic_bsp.simulated_waiting_error", error("error"), 0.1, "lower", "share")
    another = error("error_with_another")
    claims.add(
        "elastic_bsp.simulated_waiting_error_of_another_trial", another, None, "lower", "share"
    )
    return claims


def summarize(measured: Measured, environment: Mapping[str, Any]) -> Report:
    """Returns the report."""
    rows = comparison.of_trainings(measured, row_of)
    curves = comparison.of_trainings(measured, curve_of)
    of_cases = [row_of_case(case, rows) for case, _ in measured]
    found = [
        medians_of(case, method, rows)
        for case in of_cases
        for method in methods_of(rows, case["case"])
        if paired(rows, case["case"], method, HOROVOD)
    ]
    simulated = simulations.of_runs(measured)
    return Report(
        "elastic_bsp",
        claims_of(found, simulated),
        [
            *of_cases,
            *found,
            *by_target(curves),
            *orders(found),
            *simulated,
            *simulations.of_long_trainings(measured),
            *simulations.of_many_workers(measured),
            *rows,
            *curves,
        ],
        environment,
        unprinted=(comparison.TRAININGS, CURVES),
        idle_share=comparison.idle_share(rows),
    )

"""What `trepak bench elastic_bsp` reports of what it has measured."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from trepak.scripts.bench import elastic_bsp_simulations as simulations
from trepak.scripts.bench.elastic_bsp_cases import SERVED_BSP
from trepak.scripts.bench.elastic_bsp_claims import Row, claims_of
from trepak.scripts.bench.elastic_bsp_paper import FINISHING_ORDERS
from trepak.scripts.bench.uneven.cases import Case
from trepak.scripts.bench.uneven.curves import seconds_until
from trepak.scripts.bench.uneven.methods import HOROVOD
from trepak.scripts.bench.uneven.trainings import Run
from trepak.scripts.report import Report

# Kinds of rows.
CASES = "cases"
METHODS = "medians of the trials"
TARGETS = "gain in time to other accuracies, median of the trials"
ORDERS = "who ends first (section V-B)"
TRAININGS = "trainings"
CURVES = "seconds, held-out loss and accuracy of what was kept"

_OTHER_TARGETS = (0.5, 0.6, 0.7, 0.75, 0.8, 0.84, 0.9, 0.95)


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
    ranks, first = run["ranks"], run["ranks"][0]
    curve, figures = first["curve"], first["figures"]
    seconds, steps = curve[-1][0], sum(rank["steps"] for rank in ranks)
    exchanging = sum(rank["figures"].get("exchange_s", 0.0) for rank in ranks)
    barriers = figures.get("planned_barriers", 0)
    predictions = figures.get("planned_predictions", 0)
    until = seconds_until(curve, case.target_accuracy or 0.0)
    return {
        "kind": TRAININGS,
        "case": case.name,
        "way": run["way"],
        "seed": run["seed"],
        "seconds": seconds,
        "seconds_to_accuracy": until if math.isfinite(until) else None,
        "steps_to_accuracy": steps * until / seconds if math.isfinite(until) else None,
        "final_accuracy": first["final_accuracy"],
        "final_loss": curve[-1][1] if math.isfinite(curve[-1][1]) else None,
        "steps": steps,
        "steps_per_s": steps / seconds,
        "waiting_ms_per_step": 1000 * waiting_of(run) / steps,
        "exchange_ms_per_step": 1000 * exchanging / steps,
        "drawn_ms": 1000 * sum(rank["drawn_s"] for rank in ranks) / steps,
        "computed_ms": 1000 * sum(rank["computed_s"] for rank in ranks) / steps,
        "barriers": barriers,
        "steps_per_barrier": steps / len(ranks) / barriers if barriers else None,
        "predicted_waits_s": figures.get("planned_predicted_waits", 0.0),
        "longest_waits_s": figures.get("planned_longest_waits", 0.0),
        "prediction_error": figures["planned_error"] / predictions if predictions else None,
        "scheduler_share": figures.get("planned_planning", 0.0) / seconds,
        "own_ms": first["own_ms"],
        "cpu_idle": first["idle"],
        "cpu_stolen": first["stolen"],
    }


def curve_of(case: Case, run: Run) -> dict[str, Any]:
    """Returns one training's curve as a row."""
    points = [
        (seconds, loss if math.isfinite(loss) else None, accuracy)
        for seconds, loss, accuracy in run["ranks"][0]["curve"]
    ]
    return {
        "kind": CURVES,
        "case": case.name,
        "way": run["way"],
        "seed": run["seed"],
        "final_accuracy": run["ranks"][0]["final_accuracy"],
        "target": case.target_accuracy,
        "curve": points,
    }


def row_of_case(case: Case, rows: Sequence[Row]) -> dict[str, Any]:
    """Returns what a case is, and the most that its ranks could gain, as a row.

    `bound` is max(T) · mean(1/T) of computing times T: as if nothing were exchanged. What Horovod's
    steps take longer than that can be gained too: `larger_bound` is of what they took.
    """
    waited = [
        1000 * row["seconds"] * len(case.ranks) / row["steps"]
        for row in rows
        if row["case"] == case.name and row["way"] == HOROVOD
    ]
    slowest = case.step_ms() - case.exchange_ms
    return {
        "kind": CASES,
        "case": case.name,
        "task": case.task,
        "ranks": len(case.ranks),
        "target_accuracy": case.target_accuracy,
        "rate": case.rate,
        "batch": case.batch,
        "parameters": case.parameters,
        "exchange_ms": case.exchange_ms,
        "link_mbit_per_s": case.bits_per_second() / 1e6,
        "step_ms": case.step_ms(),
        "measured_step_ms": statistics.median(waited) if waited else None,
        "bound": case.bound(slowest),
        "larger_bound": case.bound(max(slowest, statistics.median(waited))) if waited else None,
    }


def methods_of(of_cases: Sequence[Row], rows: Sequence[Row]) -> list[dict[str, Any]]:
    """Returns a row for each case and method: medians of the trials, and gains over Horovod."""
    found = []
    for case in of_cases:
        of = {(row["way"], row["seed"]): row for row in rows if row["case"] == case["case"]}
        for method in dict.fromkeys(method for method, _ in of):
            pairs = [
                (of[method, s], of[HOROVOD, s]) for w, s in of if w == method and (HOROVOD, s) in of
            ]
            if not pairs:
                continue
            faster = statistics.median(a["steps_per_s"] / b["steps_per_s"] for a, b in pairs)
            served = [
                of[method, seed]["steps_per_s"] / of[SERVED_BSP, seed]["steps_per_s"]
                for other, seed in of
                if other == method and (SERVED_BSP, seed) in of
            ]
            found.append(
                {
                    "kind": METHODS,
                    "case": case["case"],
                    "way": method,
                    "seconds": _median(pairs, "seconds"),
                    "seconds_to_accuracy": _median(pairs, "seconds_to_accuracy"),
                    "time_to_accuracy": statistics.median(_sooner(a, b) for a, b in pairs),
                    "steps_until_then": _median(pairs, "steps_to_accuracy"),
                    "steps_per_s": faster,
                    "steps_per_s_vs_served_bsp": statistics.median(served) if served else None,
                    "bound": case["bound"],
                    "fraction_of_bound": faster / case["bound"],
                    "fraction_of_larger_bound": faster / case["larger_bound"],
                    "final_accuracy": _median(pairs, "final_accuracy"),
                    "waiting_ms_per_step": _median(pairs, "waiting_ms_per_step"),
                    "waiting_vs_bsp": statistics.median(
                        a["waiting_ms_per_step"] / max(b["waiting_ms_per_step"], 1e-9)
                        for a, b in pairs
                    ),
                    "steps_per_barrier": _median(pairs, "steps_per_barrier"),
                    "prediction_error": _median(pairs, "prediction_error"),
                    "scheduler_share": _median(pairs, "scheduler_share"),
                }
            )
    return found


def _median(pairs: Sequence[tuple[Row, Row]], figure: str) -> float | None:
    """Returns it of the trials, where one without it, as it never came to the accuracy, is last."""
    values = [math.inf if ours[figure] is None else ours[figure] for ours, _ in pairs]
    median = float(statistics.median(values))
    return median if math.isfinite(median) else None


def _sooner(ours: Row, theirs: Row) -> float:
    """Returns how many times as long the other takes to the accuracy; 0 if ours never has it.

    If the other never has it, as long as it lasted: what is returned is then less than was gained.
    """
    if ours["seconds_to_accuracy"] is None:
        return 0.0
    other = theirs["seconds_to_accuracy"] or theirs["seconds"]
    return float(other / ours["seconds_to_accuracy"])


def orders(found: Sequence[Row]) -> list[dict[str, Any]]:
    """Returns for each case in which order its methods have ended the same number of samples."""
    of_cases = dict.fromkeys(row["case"] for row in found)
    return [
        {
            "kind": ORDERS,
            "case": case,
            "order": ", ".join(
                row["way"]
                for row in sorted(found, key=lambda row: row["seconds"])
                if row["case"] == case
            ),
            "paper": ", ".join(FINISHING_ORDERS.get(case, ())),
        }
        for case in of_cases
    ]


def by_target(measured: Sequence[tuple[Case, Sequence[Run]]]) -> list[dict[str, Any]]:
    """Returns gains in time to other accuracies than the targets: how much these matter."""
    found = []
    for case, runs in measured:
        of = {(run["way"], run["seed"]): run["ranks"][0]["curve"] for run in runs}
        for method in dict.fromkeys(method for method, _ in of if method != HOROVOD):
            pairs = [
                (of[HOROVOD, s], of[method, s]) for w, s in of if w == method and (HOROVOD, s) in of
            ]
            row: dict[str, Any] = {"kind": TARGETS, "case": case.name, "way": method}
            for accuracy in _OTHER_TARGETS:
                times = [[seconds_until(curve, accuracy) for curve in pair] for pair in pairs]
                reached = [a / b for a, b in times if math.isfinite(a) and math.isfinite(b)]
                all_reached = reached and len(reached) == len(pairs)
                row[f"to_{accuracy:g}"] = statistics.median(reached) if all_reached else None
            found.append(row)
    return found


def summarize(
    measured: Sequence[tuple[Case, Sequence[Run]]], environment: Mapping[str, Any]
) -> Report:
    """Returns the report."""
    rows = [row_of(case, run) for case, runs in measured for run in runs]
    curves = [curve_of(case, run) for case, runs in measured for run in runs]
    of_cases = [row_of_case(case, rows) for case, _ in measured]
    found = methods_of(of_cases, rows)
    simulated = simulations.of_runs(measured)
    return Report(
        "elastic_bsp",
        claims_of(found, simulated),
        [
            *of_cases,
            *found,
            *by_target(measured),
            *orders(found),
            *simulated,
            *simulations.of_long_trainings(measured),
            *simulations.of_many_workers(measured),
            *rows,
            *curves,
        ],
        environment,
        unprinted=(TRAININGS, CURVES),
        idle_share=min((row["cpu_idle"] for row in rows), default=None),
    )

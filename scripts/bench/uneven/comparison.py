"""What benches report alike of trainings on uneven clusters: when they reached what, and gains."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from trepak.scripts.bench.uneven.cases import Case
from trepak.scripts.bench.uneven.methods import HOROVOD
from trepak.scripts.bench.uneven.trainings import Run

# Kinds of rows.
CASES = "cases"
TRAININGS = "trainings"

Row = Mapping[str, Any]
Curve = Sequence[Sequence[float]]
Measured = Sequence[tuple[Case, Sequence[Run]]]


def finite(value: float) -> float | None:
    """Returns a number that JSON has; None for others."""
    return value if math.isfinite(value) else None


def seconds_to(curve: Curve, target: float | None) -> float | None:
    """Returns when a held-out loss was reached, between the ends of epochs; None if it was not.

    Args:
        curve: after each epoch, seconds of training, loss (not finite where training went astray)
            and accuracy.
        target: the loss; None: there is none.
    """
    then, before = 0.0, math.inf
    for seconds, loss, _ in curve:
        if target is not None and loss <= target:
            known = math.isfinite(before)  # losses fall about exponentially
            share = math.log(before / target) / math.log(before / loss) if known else 1.0
            return then + share * (seconds - then)
        then, before = seconds, loss
    return None


def seconds_until(curve: Curve, accuracy: float) -> float:
    """Returns when an accuracy was reached, between the ends of epochs; inf if it was not."""
    then, most = 0.0, 0.0
    for seconds, _, reached in curve:
        if reached >= accuracy:
            return then + (seconds - then) * (accuracy - most) / max(reached - most, 1e-9)
        then, most = seconds, max(reached, most)
    return math.inf


def best_accuracy(curve: Curve) -> float:
    """Returns the accuracy where the held-out loss was the least; 0 if it was never finite."""
    known = [one for one in curve if math.isfinite(one[1])]
    return min(known, key=lambda one: one[1])[2] if known else 0.0


def of_trainings(measured: Measured, row_of: Callable[[Case, Run], Any]) -> list[Any]:
    """Returns a row for each training."""
    return [row_of(case, run) for case, runs in measured for run in runs]


def training_of(case: Case, run: Run) -> dict[str, Any]:
    """Returns what every bench tells of a training, as a row."""
    ranks, first = run["ranks"], run["ranks"][0]
    steps = sum(rank["steps"] for rank in ranks)
    return {
        "kind": TRAININGS,
        "case": case.name,
        "way": run["way"],
        "seed": run["seed"],
        "seconds": first["curve"][-1][0],
        "steps": steps,
        "drawn_ms": 1000 * sum(rank["drawn_s"] for rank in ranks) / steps,
        "computed_ms": 1000 * sum(rank["computed_s"] for rank in ranks) / steps,
        "own_ms": first["own_ms"],
        "cpu_idle": first["idle"],
        "cpu_stolen": first["stolen"],
    }


def curve_of(kind: str, case: Case, run: Run, **more: Any) -> dict[str, Any]:
    """Returns a training's curve as a row, with what else is told of it."""
    curve = [
        (seconds, finite(loss), accuracy) for seconds, loss, accuracy in run["ranks"][0]["curve"]
    ]
    row = {"kind": kind, "case": case.name, "way": run["way"], "seed": run["seed"]}
    return row | more | {"curve": curve}


def case_of(case: Case, rows: Sequence[Row], **more: Any) -> dict[str, Any]:
    """Returns what a case is, as a row.

    Args:
        case: which.
        rows: of trainings: `measured_step_ms` is what Horovod's steps took.
        more: what else is told of it.
    """
    waited = [
        1000 * row["seconds"] * len(case.ranks) / row["steps"]
        for row in rows
        if row["case"] == case.name and row["way"] == HOROVOD
    ]
    return {
        "kind": CASES,
        "case": case.name,
        "task": case.task,
        **more,
        "rate": case.rate,
        "batch": case.batch,
        "parameters": case.parameters,
        "exchange_ms": case.exchange_ms,
        "link_mbit_per_s": case.bits_per_second() / 1e6,
        "step_ms": case.step_ms(),
        "measured_step_ms": statistics.median(waited) if waited else None,
    }


def methods_of(rows: Sequence[Row], case: str) -> list[str]:
    """Returns the methods by which a case was trained."""
    return list(dict.fromkeys(row["way"] for row in rows if row["case"] == case))


def paired(rows: Sequence[Row], case: str, method: str, over: str) -> list[tuple[Row, Row]]:
    """Returns the rows of a method, each with that of another for the same seed of the case."""
    of = {(row["way"], row["seed"]): row for row in rows if row["case"] == case}
    seeds = [seed for name, seed in of if name == method and (over, seed) in of]
    return [(of[method, seed], of[over, seed]) for seed in seeds]


def compare(
    rows: Sequence[Row], case: str, method: str, over: str, how: Callable[[Row, Row], float]
) -> float | None:
    """Returns the median over the seeds of what compares two methods; None if they were not run."""
    found = [how(*pair) for pair in paired(rows, case, method, over)]
    return statistics.median(found) if found else None


def sooner(ours: Row, theirs: Row, figure: str) -> float:
    """Returns how many times as long the others take to a target.

    Whoever has not reached it has gained nothing by it. Others who have not are taken to reach it
    when their training ends, which is sooner than they would.

    Args:
        ours: a training's row.
        theirs: another's.
        figure: the seconds until then; None in a row of who has not reached it.
    """
    if ours[figure] is None:
        return 0.0
    return float((theirs[figure] or theirs["seconds"]) / ours[figure])


def idle_share(rows: Sequence[Row]) -> float | None:
    """Returns the least share of the CPU that was idle in a training."""
    return min((row["cpu_idle"] for row in rows), default=None)

"""What `trepak bench rna` claims of what it has measured."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from typing import Any

from trepak.scripts.bench_report import Claim, Report
from trepak.scripts.rna_cases import Case

Run = Mapping[str, Any]  # see `bench_rna_worker`
Curve = Sequence[Sequence[float]]


def seconds_to(curve: Curve, target: float) -> float | None:
    """Returns when a held-out loss was reached, between the ends of epochs; None if it was not.

    Args:
        curve: after each epoch, seconds of training, loss, accuracy.
        target: the loss.
    """
    then, least = 0.0, float("inf")
    for seconds, loss, _ in curve:
        if loss <= target:
            share = 1.0 if least == float("inf") else (least - target) / (least - loss)
            return then + share * (seconds - then)
        then, least = seconds, loss
    return None


def best_accuracy(curve: Curve) -> float:
    """Returns the accuracy where the held-out loss was the least."""
    return min(curve, key=lambda one: one[1])[2]


def row_of(case: Case, run: Run) -> dict[str, Any]:
    """Returns one training as a row."""
    curve = run["ranks"][0]["curve"]
    seconds = curve[-1][0]
    ranks = run["ranks"]
    steps = sum(rank["steps"] for rank in ranks)
    rounds = ranks[0]["rounds"]
    count = max(1, rounds.get("rounds", 0))
    return {
        "kind": "trainings",
        "case": case.name,
        "way": run["way"],
        "seed": run["seed"],
        "seconds_to_loss": seconds_to(curve, case.target),
        "best_loss": min(loss for _, loss, _ in curve),
        "accuracy": best_accuracy(curve),
        "epochs": len(curve),
        "seconds": seconds,
        "gradients_per_s": steps / seconds,
        "utilisation": sum(rank["computed_s"] for rank in ranks) / seconds / len(ranks),
        "rounds_per_s": rounds.get("rounds", 0) / seconds,
        "contributors": rounds.get("contributors", 0) / count,
        "staleness": sum(rank["rounds"].get("staleness", 0) for rank in ranks)
        / max(1, sum(rank["rounds"].get("contributed", 0) for rank in ranks)),
        "dropped": sum(rank["rounds"].get("dropped", 0) for rank in ranks),
        "cpu_idle": ranks[0]["idle"],
        "cpu_stolen": ranks[0]["stolen"],
    }


def gain(rows: Sequence[Mapping[str, Any]], case: str, way: str, over: str, figure: str) -> float:
    """Returns the median over the seeds of how much less a way takes than another, or nan."""
    of = {(row["way"], row["seed"]): row[figure] for row in rows if row["case"] == case}
    seeds = [seed for name, seed in of if name == way]
    ratios = [
        of[over, seed] / of[way, seed]
        for seed in seeds
        if of.get((over, seed)) is not None and of[way, seed] is not None
    ]
    return statistics.median(ratios) if len(ratios) == len(seeds) and ratios else float("nan")


def summarize(
    measured: Sequence[tuple[Case, Sequence[Run]]], environment: Mapping[str, Any]
) -> Report:
    """Returns the report."""
    rows = [row_of(case, run) for case, runs in measured for run in runs]
    claims: dict[str, Claim] = {}
    bounds = []
    for case, runs in measured:
        ways = dict.fromkeys(run["way"] for run in runs)
        for way in ways:
            to_loss = gain(rows, case.name, way, "horovod", "seconds_to_loss")
            rate = 1 / gain(rows, case.name, way, "horovod", "gradients_per_s")
            bounds.append(
                {
                    "kind": "gain over Horovod, and its bound",
                    "case": case.name,
                    "way": way,
                    "bound": case.bound(),
                    "time_to_loss": to_loss,
                    "gradients_per_s": rate,
                    "fraction": to_loss / case.bound(),
                }
            )
    idle = [row["cpu_idle"] for row in rows]
    return Report("rna", claims, [*bounds, *rows], environment, idle_share=min(idle, default=None))

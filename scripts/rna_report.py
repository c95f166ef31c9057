"""What `trepak bench rna` claims of what it has measured."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from trepak.scripts import rna_probes
from trepak.scripts.bench_report import Claim, Report
from trepak.scripts.rna_cases import ADPSGD, EAGER, GROUPED, HOROVOD, RNA, Case

_PROBES = 10_000  # simulated rounds

GAINS = "gain over Horovod, median of the seeds"

# Gains over Horovod that the thesis reports (5.6.1, 5.6.3).
_THESIS = {
    ("resnet", RNA): 1.7,
    ("resnet", EAGER): 1.3,
    ("mixed", RNA): 1.5,
    ("mixed", GROUPED): 1.8,
    ("lstm", RNA): 1.6,
    ("transformer", RNA): 2.2,
    ("vgg", RNA): 1.4,
}

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
            known = least < float("inf")  # losses fall about exponentially
            share = math.log(least / target) / math.log(least / loss) if known else 1.0
            return then + share * (seconds - then)
        then, least = seconds, loss
    return None


def seconds_until(curve: Curve, accuracy: float) -> float:
    """Returns when an accuracy was reached, between the ends of epochs; inf if it was not."""
    then, most = 0.0, 0.0
    for seconds, _, reached in curve:
        if reached >= accuracy:
            return then + (seconds - then) * (accuracy - most) / max(reached - most, 1e-9)
        then, most = seconds, max(reached, most)
    return float("inf")


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
        "target": case.target,
        "seconds_to_loss": seconds_to(curve, case.target),
        "best_loss": min(loss for _, loss, _ in curve),
        "accuracy": best_accuracy(curve),
        "curve": curve,
        "epochs": len(curve),
        "seconds": seconds,
        "gradients_per_s": steps / seconds,
        "utilisation": sum(rank["computed_s"] for rank in ranks) / seconds / len(ranks),
        "rounds_per_s": rounds.get("rounds", 0) / seconds,
        "contributors": rounds.get("contributors", 0) / count,
        "staleness": sum(rank["rounds"].get("staleness", 0) for rank in ranks)
        / max(1, sum(rank["rounds"].get("contributed", 0) for rank in ranks)),
        "dropped": sum(rank["rounds"].get("dropped", 0) for rank in ranks),
        "copy_share": statistics.mean(rank["copied_s"] for rank in ranks) / seconds,
        "own_ms": statistics.mean(rank["own_ms"] for rank in ranks),
        "cpu_idle": ranks[0]["idle"],
        "cpu_stolen": ranks[0]["stolen"],
    }


def compare(
    rows: Sequence[Mapping[str, Any]], case: str, way: str, over: str, how: Callable[..., float]
) -> float:
    """Returns the median over the seeds of what compares a way's row with another's, or nan.

    It is nan, so that no claim is met, if a seed has no such row, or one without the figure.
    """
    of = {(row["way"], row["seed"]): row for row in rows if row["case"] == case}
    seeds = [seed for name, seed in of if name == way]
    try:
        return statistics.median([how(of[way, seed], of[over, seed]) for seed in seeds])
    except (KeyError, TypeError, statistics.StatisticsError):
        return float("nan")


def sooner(ours: Mapping[str, Any], theirs: Mapping[str, Any]) -> float:
    """Returns how many times as long the others take to the target."""
    return float(theirs["seconds_to_loss"] / ours["seconds_to_loss"])


def sooner_at_equal_accuracy(ours: Mapping[str, Any], theirs: Mapping[str, Any]) -> float:
    """Returns how many times as long the others take to the accuracy that both reach."""
    accuracy = min(ours["accuracy"], theirs["accuracy"])
    then = [seconds_until(one["curve"], accuracy) for one in (theirs, ours)]
    return float(then[0] / then[1])


def faster(ours: Mapping[str, Any], theirs: Mapping[str, Any]) -> float:
    """Returns how many times as many gradients are computed per second."""
    return float(ours["gradients_per_s"] / theirs["gradients_per_s"])


def less_accurate(ours: Mapping[str, Any], theirs: Mapping[str, Any]) -> float:
    """Returns by how many points the others are more accurate."""
    return float(100 * (theirs["accuracy"] - ours["accuracy"]))


def gains(cases: Sequence[Case], rows: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Returns a row for each case and way: its gains over Horovod, and the most there could be."""
    found = []
    for case in cases:
        for way in dict.fromkeys(row["way"] for row in rows if row["case"] == case.name):
            to_loss = compare(rows, case.name, way, HOROVOD, sooner)
            found.append(
                {
                    "kind": GAINS,
                    "case": case.name,
                    "way": way,
                    "bound": case.bound(),
                    "time_to_loss": to_loss,
                    "gradients_per_s": compare(rows, case.name, way, HOROVOD, faster),
                    "fraction_of_bound": to_loss / case.bound(),
                    "accuracy_gap": compare(rows, case.name, way, HOROVOD, less_accurate),
                    "thesis": _THESIS.get((case.name, way)),
                }
            )
    return found


def claims_of(
    found: Sequence[Mapping[str, Any]], rows: Sequence[Mapping[str, Any]]
) -> dict[str, Claim]:
    """Returns what the bench claims."""
    of = {(row["case"], row["way"]): row for row in found}
    nothing: Mapping[str, float] = {}

    def gained(figure: str, case: str = "resnet", way: str = RNA) -> float:
        return float(of.get((case, way), nothing).get(figure, float("nan")))

    def claim(value: float, target: float, unit: str = "x", thesis: float | None = None) -> Claim:
        return Claim(value, unit, target, "higher", thesis, emulated=True)

    def ours(figure: str, case: str = "resnet") -> float:
        values = [r[figure] for r in rows if r["case"] == case and r["way"] == RNA]
        return statistics.median(values) if values else float("nan")

    return {
        "rna.fraction_of_bound": claim(gained("fraction_of_bound"), 0.9, "share"),
        "rna.time_to_loss_vs_horovod": claim(gained("time_to_loss"), 1.6, thesis=1.7),
        "rna.gradients_per_second_vs_horovod": claim(gained("gradients_per_s"), 1.6),
        "rna.time_to_loss_lstm_vs_horovod": claim(gained("time_to_loss", "lstm"), 1.7, thesis=1.6),
        "rna.time_to_loss_transformer_vs_horovod": claim(
            gained("time_to_loss", "transformer"), 0.0, thesis=2.2
        ),
        "rna.time_to_loss_vgg_vs_horovod": claim(gained("time_to_loss", "vgg"), 0.0, thesis=1.4),
        "rna.time_to_loss_vs_eager_sgd": claim(
            compare(rows, "resnet", RNA, EAGER, sooner), 1.15, thesis=1.3
        ),
        "rna.time_to_loss_vs_adpsgd_at_equal_accuracy": claim(
            compare(rows, "resnet", RNA, ADPSGD, sooner_at_equal_accuracy), 0.0, thesis=1.3
        ),
        "rna_hierarchical.time_to_loss_mixed_vs_horovod": claim(
            gained("time_to_loss", "mixed", GROUPED), 1.8, thesis=1.8
        ),
        "rna.accuracy_gap": Claim(
            gained("accuracy_gap"), "points", 0.5, "lower", paper=-0.2, emulated=True
        ),
        "rna.worker_utilisation": claim(ours("utilisation"), 0.95, "share"),
        "rna.overhead_even": Claim(
            1 / gained("gradients_per_s", "even"), "x", 1.05, "lower", emulated=True
        ),
        "rna.copy_share": Claim(ours("copy_share"), "share", 1.0, "lower", 0.062, emulated=True),
        "rna.probe_speedup": Claim(
            rna_probes.speedup(rna_probes.lasting_tasks, _PROBES, seed=0), "x", 1.5, "higher", 2.4
        ),
    }


def summarize(
    measured: Sequence[tuple[Case, Sequence[Run]]], environment: Mapping[str, Any]
) -> Report:
    """Returns the report."""
    rows = [row_of(case, run) for case, runs in measured for run in runs]
    found = gains([case for case, _ in measured], rows)
    idle = [row["cpu_idle"] for row in rows]
    return Report(
        "rna",
        claims_of(found, rows),
        [*found, *rows],
        environment,
        idle_share=min(idle, default=None),
    )

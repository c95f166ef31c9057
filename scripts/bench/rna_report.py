"""What `trepak bench rna` claims of what it has measured."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from typing import Any

from trepak.scripts.bench import rna_probes, rna_thesis
from trepak.scripts.bench.uneven import comparison
from trepak.scripts.bench.uneven.cases import Case
from trepak.scripts.bench.uneven.comparison import (
    Measured,
    Row,
    best_accuracy,
    compare,
    methods_of,
    seconds_to,
    seconds_until,
)
from trepak.scripts.bench.uneven.methods import ADPSGD, EAGER, GROUPED, HOROVOD, RNA
from trepak.scripts.bench.uneven.trainings import Run
from trepak.scripts.report import Claims, Report

_PROBES = 50_000  # simulated rounds

# Kinds of rows.
GAINS = "gain over Horovod, median of the seeds"
ACCURACIES = "trained until early stopping ends it, median of the seeds (Tables 5.3, 5.4)"
CURVES = "seconds, held-out loss and accuracy after each epoch"


def row_of(case: Case, run: Run) -> dict[str, Any]:
    """Returns one training as a row."""
    row = comparison.training_of(case, run)
    ranks, curve, rounds = run["ranks"], run["ranks"][0]["curve"], run["ranks"][0]["rounds"]
    seconds, steps = row["seconds"], row["steps"]

    def of_all(figure: str) -> float:
        counted = [{**rank, **rank.get("rounds", {}), **rank.get("figures", {})} for rank in ranks]
        return sum(one.get(figure, 0) for one in counted)

    contributed, available = of_all("contributed"), seconds * len(ranks)
    # Steps are busy for what they took, or what they were to take if that is less.
    busy = min(of_all("computed_s"), of_all("drawn_s"))
    shares = {
        "computed_share": "computed_s",
        "drawn_share": "drawn_s",
        "begin_share": "began_s",
        "drain_share": "drained_s",
        "copy_share": "copied_s",
    }
    return row | {
        "ranks": len(ranks),
        "target": case.target,
        "seconds_to_loss": seconds_to(curve, case.target),
        "best_loss": min((loss for _, loss, _ in curve if math.isfinite(loss)), default=None),
        "accuracy": best_accuracy(curve),
        "training_accuracy": training_accuracies_of(run)[-1],
        "epochs": len(curve),
        "stopped_early": ranks[0]["stopped_early"],
        "steps_of_a_rank": steps / len(ranks),
        "gradients_per_s": (steps - of_all("dropped")) / seconds,
        "contributions_per_s": contributed / seconds,
        "busy_share": busy / available,
        **{share: of_all(figure) / available for share, figure in shares.items()},
        "step_ms": 1000 * available / steps,
        "rounds_per_s": rounds.get("rounds", 0) / seconds,
        "contributors": rounds.get("contributors", 0) / max(1, rounds.get("rounds", 0)),
        "staleness": of_all("staleness") / max(1, contributed),
        "dropped": of_all("dropped"),
    }


def training_accuracies_of(run: Run) -> list[float]:
    """Returns the accuracies of a training's epochs; of those that are kept, the last one's."""
    first = run["ranks"][0]
    return list(first.get("training_accuracies", [first.get("training_accuracy")]))


def curve_of(case: Case, run: Run) -> dict[str, Any]:
    """Returns one training's curve as a row."""
    return comparison.curve_of(
        CURVES,
        case,
        run,
        target=case.target,
        accuracy=best_accuracy(run["ranks"][0]["curve"]),
        training_accuracies=training_accuracies_of(run),
    )


def sooner(ours: Row, theirs: Row) -> float:
    """Returns how many times as long the others take to the loss; see `comparison.sooner`."""
    return comparison.sooner(ours, theirs, "seconds_to_loss")


def faster(ours: Row, theirs: Row) -> float:
    """Returns how many times as many gradients are computed per second, without dropped ones."""
    return float(ours["gradients_per_s"] / theirs["gradients_per_s"])


def less_accurate(ours: Row, theirs: Row) -> float:
    """Returns by how many points the others are more accurate; 100 if one has not come to its end.

    That is where early stopping ends it.
    """
    if not (ours["stopped_early"] and theirs["stopped_early"]):
        return 100.0
    return float(100 * (theirs["accuracy"] - ours["accuracy"]))


def over_even(ours: Row, theirs: Row, exchange_ms: float) -> float:
    """Returns how many times as long our steps take as theirs, or as theirs should if that is less.

    All ranks of one machine begin to compute at once where they wait for each other, so that a step
    can take longer than on a cluster. It should take what they compute, what begins and ends of
    epochs take, as in our steps, and the exchange.
    """
    ends = (theirs["begin_share"] + theirs["drain_share"]) * theirs["step_ms"]
    return float(
        ours["step_ms"] / min(theirs["step_ms"], theirs["computed_ms"] + ends + exchange_ms)
    )


def sooner_at_equal_accuracy(ours: Row, theirs: Row) -> float:
    """Returns how many times as long the others take to the accuracy that both reach; of curves."""
    accuracy = min(ours["accuracy"], theirs["accuracy"])
    mine, others = (seconds_until(one["curve"], accuracy) for one in (ours, theirs))
    return others / mine if mine > 0 else 0.0


def median(rows: Sequence[Row], case: str, method: str, figure: str) -> float:
    """Returns the median of a figure over the seeds of a case that was run by that method."""
    return float(
        statistics.median(r[figure] for r in rows if r["case"] == case and r["way"] == method)
    )


def accuracies(of_cases: Sequence[Row], rows: Sequence[Row]) -> list[dict[str, Any]]:
    """Returns a row for each method of the cases that early stopping ends."""
    found = []
    for name in (case["case"] for case in of_cases if case["to_the_end"]):
        for method in methods_of(rows, name):
            training, held_out, thousands = rna_thesis.ACCURACIES.get(
                (name, method), (None, None, None)
            )
            found.append(
                {
                    "kind": ACCURACIES,
                    "case": name,
                    "way": method,
                    "seconds": median(rows, name, method, "seconds"),
                    "steps_of_a_rank": median(rows, name, method, "steps_of_a_rank"),
                    "thesis_iterations": None if thousands is None else 1000 * thousands,
                    "training_accuracy": median(rows, name, method, "training_accuracy"),
                    "thesis_training": training,
                    "accuracy": median(rows, name, method, "accuracy"),
                    "thesis_accuracy": held_out,
                    "gap_in_points": compare(rows, name, method, HOROVOD, less_accurate),
                }
            )
    return found


def row_of_case(case: Case, rows: Sequence[Row]) -> dict[str, Any]:
    """Returns what a case is, and the bounds of its gains, as a row.

    Where Horovod's steps took more than they should take, the bound with that is higher, and it is
    the one to claim against.
    """
    row = comparison.case_of(case, rows, target=case.target)
    measured = row["measured_step_ms"]
    return row | {
        "to_the_end": case.to_the_end,
        "bound": case.bound(),
        "bound_without_exchange": case.bound(case.step_ms() - case.exchange_ms),
        "bound_with_measured_step": None if measured is None else case.bound(measured),
    }


def gains(of_cases: Sequence[Row], rows: Sequence[Row]) -> list[dict[str, Any]]:
    """Returns a row for each case and method: gains over Horovod, and the most there could be."""
    found = []
    for case in of_cases:
        name, bound = case["case"], max(case["bound"], case["bound_with_measured_step"] or 0.0)
        for method in methods_of(rows, name):
            to_loss = compare(rows, name, method, HOROVOD, sooner) if case["target"] else None
            found.append(
                {
                    "kind": GAINS,
                    "case": name,
                    "way": method,
                    "bound": bound,
                    "time_to_loss": to_loss,
                    "fraction_of_bound": None if to_loss is None else to_loss / bound,
                    "gradients_per_s": compare(rows, name, method, HOROVOD, faster),
                    "thesis": rna_thesis.GAINS.get((name, method)),
                    "thesis_per_step": rna_thesis.GAINS_PER_STEP.get((name, method)),
                    "copy_share": median(rows, name, method, "copy_share"),
                    "thesis_copy_share": rna_thesis.COPY_SHARES.get(name)
                    if method == RNA
                    else None,
                }
            )
    return found


def claims_of(
    of_cases: Sequence[Row],
    found: Sequence[Row],
    rows: Sequence[Row],
    curves: Sequence[Row],
    probes: Sequence[Row],
) -> Claims:
    """Returns what the bench claims of what was run."""
    of = {(row["case"], row["way"]): row for row in found}
    claims = Claims()

    def claim(name: str, value: float | None, target: float | None, **how: Any) -> None:
        claims.add(name, value, target, paper=rna_thesis.CLAIMS.get(name), **how)

    def gained(figure: str, case: str = "resnet", method: str = RNA) -> float | None:
        value: float | None = of[case, method][figure] if (case, method) in of else None
        return value

    def ours(figure: str) -> float | None:
        return median(rows, "resnet", RNA, figure) if ("resnet", RNA) in of else None

    claim("rna.fraction_of_bound", gained("fraction_of_bound"), 0.9, unit="share")
    claim("rna.time_to_loss_vs_horovod", gained("time_to_loss"), 1.6)
    claim("rna.gradients_per_second_vs_horovod", gained("gradients_per_s"), 1.6)
    claim("rna.time_to_loss_lstm_vs_horovod", gained("time_to_loss", "lstm"), 1.7)
    for case in ("transformer", "vgg"):
        claim(f"rna.time_to_loss_{case}_vs_horovod", gained("time_to_loss", case), None)
    for case in ("lstm", "transformer", "vgg"):
        claim(f"rna.fraction_of_bound.{case}", gained("fraction_of_bound", case), 0.9, unit="share")
    grouped = gained("fraction_of_bound", "mixed", GROUPED)
    claim("rna_hierarchical.fraction_of_bound", grouped, 0.9, unit="share")
    eager = compare(rows, "resnet", RNA, EAGER, sooner)
    claim("rna.time_to_loss_vs_eager_sgd", eager, 1.15)
    pairs = compare(curves, "accuracy", RNA, ADPSGD, sooner_at_equal_accuracy)
    claim("rna.time_to_loss_vs_adpsgd_at_equal_accuracy", pairs, None)
    mixed = gained("time_to_loss", "mixed", GROUPED)
    claim("rna_hierarchical.time_to_loss_mixed_vs_horovod", mixed, 1.8)
    gap = compare(rows, "accuracy", RNA, HOROVOD, less_accurate)
    claim("rna.accuracy_gap", gap, 0.5, better="lower", unit="points")
    for network in ("vgg", "lstm"):
        gap = compare(rows, f"accuracy {network}", RNA, HOROVOD, less_accurate)
        claim(f"rna.accuracy_gap.{network}", gap, None, better="lower", unit="points")
    claim("rna.worker_utilisation", ours("busy_share"), 0.95, unit="share")
    exchange = {case["case"]: case["exchange_ms"] for case in of_cases}.get("even", 0.0)
    even = compare(rows, "even", RNA, HOROVOD, lambda a, b: over_even(a, b, exchange))
    claim("rna.overhead_even", even, 1.05, better="lower")
    claim("rna.copy_share", ours("copy_share"), None, better="lower", unit="share")
    lasting = next(row for row in probes if row["reading"] == rna_probes.LASTING)
    claim("rna.probe_speedup", lasting["speedup"], 1.5, unit="x, simulated")
    return claims


def summarize(measured: Measured, environment: Mapping[str, Any]) -> Report:
    """Returns the report."""
    rows = comparison.of_trainings(measured, row_of)
    curves = comparison.of_trainings(measured, curve_of)
    of_cases = [row_of_case(case, rows) for case, _ in measured]
    found, probes = gains(of_cases, rows), rna_probes.rows(_PROBES)
    return Report(
        "rna",
        claims_of(of_cases, found, rows, curves, probes),
        [*of_cases, *found, *accuracies(of_cases, rows), *probes, *rows, *curves],
        environment,
        unprinted=(comparison.TRAININGS, CURVES),
        idle_share=comparison.idle_share(rows),
    )

"""What `trepak bench rna` claims of what it has measured."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

from trepak.scripts.bench import rna_probes, rna_thesis
from trepak.scripts.bench.uneven.cases import Case
from trepak.scripts.bench.uneven.curves import Curve, best_accuracy, seconds_to, seconds_until
from trepak.scripts.bench.uneven.methods import ADPSGD, EAGER, GROUPED, HOROVOD, RNA
from trepak.scripts.bench.uneven.trainings import Run
from trepak.scripts.report import Claim, Report

_PROBES = 50_000  # simulated rounds

# Kinds of rows.
CASES = "cases"
GAINS = "gain over Horovod, median of the seeds"
ACCURACIES = "trained until early stopping ends it, median of the seeds (Tables 5.3, 5.4)"
TRAININGS = "trainings"
CURVES = "seconds, held-out loss and accuracy after each epoch"

_COUNTED = ("rounds", "figures")  # of a rank, by figure

Row = Mapping[str, Any]


def row_of(case: Case, run: Run) -> dict[str, Any]:
    """Returns one training as a row."""
    ranks = run["ranks"]
    curve: Curve = ranks[0]["curve"]
    seconds = curve[-1][0]
    rounds = ranks[0]["rounds"]

    def of_all(figure: str) -> float:
        return sum(
            rank.get(figure, 0) + sum(rank.get(kind, {}).get(figure, 0) for kind in _COUNTED)
            for rank in ranks
        )

    steps, contributed, available = of_all("steps"), of_all("contributed"), seconds * len(ranks)
    return {
        "kind": TRAININGS,
        "case": case.name,
        "way": run["way"],
        "seed": run["seed"],
        "ranks": len(ranks),
        "target": case.target,
        "seconds_to_loss": seconds_to(curve, case.target),
        "best_loss": min((loss for _, loss, _ in curve if math.isfinite(loss)), default=None),
        "accuracy": best_accuracy(curve),
        "training_accuracy": training_accuracies_of(run)[-1],
        "epochs": len(curve),
        "stopped_early": ranks[0]["stopped_early"],
        "seconds": seconds,
        "steps": steps,
        "steps_of_a_rank": steps / len(ranks),
        "gradients_per_s": (steps - of_all("dropped")) / seconds,
        "contributions_per_s": contributed / seconds,
        # What steps took, or what they were to take if that is less.
        "busy_share": min(of_all("computed_s"), of_all("drawn_s")) / available,
        "computed_share": of_all("computed_s") / available,
        "drawn_share": of_all("drawn_s") / available,
        "begin_share": of_all("began_s") / available,
        "drain_share": of_all("drained_s") / available,
        "step_ms": 1000 * available / steps,
        "drawn_ms": 1000 * of_all("drawn_s") / steps,
        "computed_ms": 1000 * of_all("computed_s") / steps,
        "rounds_per_s": rounds.get("rounds", 0) / seconds,
        "contributors": rounds.get("contributors", 0) / max(1, rounds.get("rounds", 0)),
        "staleness": of_all("staleness") / max(1, contributed),
        "dropped": of_all("dropped"),
        "copy_share": of_all("copied_s") / available,
        "own_ms": ranks[0]["own_ms"],
        "cpu_idle": ranks[0]["idle"],
        "cpu_stolen": ranks[0]["stolen"],
    }


def training_accuracies_of(run: Run) -> list[float]:
    """Returns the accuracies of a training's epochs; of those that are kept, the last one's."""
    first = run["ranks"][0]
    return list(first.get("training_accuracies", [first.get("training_accuracy")]))


def curve_of(case: Case, run: Run) -> dict[str, Any]:
    """Returns one training's curve as a row."""
    return {
        "kind": CURVES,
        "case": case.name,
        "way": run["way"],
        "seed": run["seed"],
        "target": case.target,
        "accuracy": best_accuracy(run["ranks"][0]["curve"]),
        "curve": [
            (seconds, loss if math.isfinite(loss) else None, accuracy)
            for seconds, loss, accuracy in run["ranks"][0]["curve"]
        ],
        "training_accuracies": training_accuracies_of(run),
    }


def sooner(ours: Row, theirs: Row) -> float:
    """Returns how many times as long the others take to the target.

    Whoever has not reached it has gained nothing by it. Others who have not are taken to reach it
    when their training ends, which is sooner than they would.
    """
    if ours["seconds_to_loss"] is None:
        return 0.0
    return float((theirs["seconds_to_loss"] or theirs["seconds"]) / ours["seconds_to_loss"])


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


def compare(
    rows: Sequence[Row], case: str, method: str, over: str, how: Callable[[Row, Row], float]
) -> float | None:
    """Returns the median over the seeds of what compares two methods; None if they were not run."""
    of = {(row["way"], row["seed"]): row for row in rows if row["case"] == case}
    seeds = [seed for name, seed in of if name == method and (over, seed) in of]
    return statistics.median(how(of[method, s], of[over, s]) for s in seeds) if seeds else None


def median(rows: Sequence[Row], case: str, method: str, figure: str) -> float:
    """Returns the median of a figure over the seeds of a case that was run by that method."""
    return float(
        statistics.median(r[figure] for r in rows if r["case"] == case and r["way"] == method)
    )


def accuracies(of_cases: Sequence[Row], rows: Sequence[Row]) -> list[dict[str, Any]]:
    """Returns a row for each method of the cases that early stopping ends."""
    found = []
    for name in (case["case"] for case in of_cases if case["to_the_end"]):
        for method in dict.fromkeys(row["way"] for row in rows if row["case"] == name):
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

    `measured_step_ms` is what Horovod's steps took; where that is more than they should take, the
    bound with it is higher, and it is the one to claim against.
    """
    waited = [
        1000 * row["seconds"] * len(case.ranks) / row["steps"]
        for row in rows
        if row["case"] == case.name and row["way"] == HOROVOD
    ]
    measured = statistics.median(waited) if waited else None
    return {
        "kind": CASES,
        "case": case.name,
        "task": case.task,
        "target": case.target,
        "rate": case.rate,
        "batch": case.batch,
        "parameters": case.parameters,
        "exchange_ms": case.exchange_ms,
        "link_mbit_per_s": case.bits_per_second() / 1e6,
        "step_ms": case.step_ms(),
        "measured_step_ms": measured,
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
        for method in dict.fromkeys(row["way"] for row in rows if row["case"] == name):
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
) -> dict[str, Claim]:
    """Returns what the bench claims of what was run."""
    of = {(row["case"], row["way"]): row for row in found}
    claims: dict[str, Claim] = {}

    def claim(
        name: str,
        value: float | None,
        target: float | None,
        better: Literal["higher", "lower"] = "higher",
        unit: str = "x",
    ) -> None:
        if value is not None:
            paper = rna_thesis.CLAIMS.get(name)
            claims[name] = Claim(value, unit, target, better, paper, emulated=True)

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
    claim("rna.accuracy_gap", gap, 0.5, "lower", "points")
    for network in ("vgg", "lstm"):
        gap = compare(rows, f"accuracy {network}", RNA, HOROVOD, less_accurate)
        claim(f"rna.accuracy_gap.{network}", gap, None, "lower", "points")
    claim("rna.worker_utilisation", ours("busy_share"), 0.95, unit="share")
    exchange = {case["case"]: case["exchange_ms"] for case in of_cases}.get("even", 0.0)
    even = compare(rows, "even", RNA, HOROVOD, lambda a, b: over_even(a, b, exchange))
    claim("rna.overhead_even", even, 1.05, "lower")
    claim("rna.copy_share", ours("copy_share"), None, "lower", "share")
    lasting = next(row for row in probes if row["reading"] == rna_probes.LASTING)
    claim("rna.probe_speedup", lasting["speedup"], 1.5, unit="x, simulated")
    return claims


def summarize(
    measured: Sequence[tuple[Case, Sequence[Run]]], environment: Mapping[str, Any]
) -> Report:
    """Returns the report."""
    rows = [row_of(case, run) for case, runs in measured for run in runs]
    curves = [curve_of(case, run) for case, runs in measured for run in runs]
    of_cases = [row_of_case(case, rows) for case, _ in measured]
    found, probes = gains(of_cases, rows), rna_probes.rows(_PROBES)
    return Report(
        "rna",
        claims_of(of_cases, found, rows, curves, probes),
        [*of_cases, *found, *accuracies(of_cases, rows), *probes, *rows, *curves],
        environment,
        unprinted=(TRAININGS, CURVES),
        idle_share=min((row["cpu_idle"] for row in rows), default=None),
    )

"""What `trepak bench rna` claims of what it has measured."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

from trepak.scripts import rna_probes
from trepak.scripts.bench_report import Claim, Report
from trepak.scripts.rna_cases import ADPSGD, EAGER, GROUPED, HOROVOD, RNA, Case
from trepak.scripts.rna_curves import Curve, best_accuracy, seconds_to, seconds_until

_PROBES = 10_000  # simulated rounds

# Kinds of rows.
CASES = "cases"
GAINS = "gain over Horovod, median of the seeds"
TRAININGS = "trainings"
CURVES = "seconds, held-out loss and accuracy after each epoch"

# Gains over Horovod that the thesis reports (5.6.1, 5.6.3).
_THESIS = {
    ("resnet", RNA): 1.7,
    ("resnet", EAGER): 1.3,
    ("mixed", RNA): 1.5,
    ("mixed", EAGER): 1.1,
    ("mixed", GROUPED): 1.8,
    ("lstm", RNA): 1.6,
    ("transformer", RNA): 2.2,
    ("transformer", EAGER): 1.4,
    ("transformer", ADPSGD): 1.2,
    ("vgg", RNA): 1.4,
}

_THESIS_CLAIMS = {
    "rna.time_to_loss_vs_horovod": 1.7,
    "rna.time_to_loss_lstm_vs_horovod": 1.6,
    "rna.time_to_loss_transformer_vs_horovod": 2.2,
    "rna.time_to_loss_vgg_vs_horovod": 1.4,
    "rna.time_to_loss_vs_eager_sgd": 1.3,
    "rna_hierarchical.time_to_loss_mixed_vs_horovod": 1.8,
    "rna.accuracy_gap": 0.3,  # Table 5.4
    "rna.copy_share": 0.062,
    "rna.probe_speedup": 2.4,
}

Row = Mapping[str, Any]
Run = Mapping[str, Any]  # see `bench_rna_worker`


def row_of(case: Case, run: Run) -> dict[str, Any]:
    """Returns one training as a row."""
    ranks = run["ranks"]
    curve: Curve = ranks[0]["curve"]
    seconds = curve[-1][0]
    rounds = ranks[0]["rounds"]

    def of_all(figure: str) -> float:
        return sum(rank.get(figure, 0) + rank["rounds"].get(figure, 0) for rank in ranks)

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
        "training_accuracy": ranks[0]["training_accuracy"],
        "epochs": len(curve),
        "stopped_early": ranks[0]["stopped_early"],
        "seconds": seconds,
        "steps": steps,
        "gradients_per_s": steps / seconds,
        "contributions_per_s": contributed / seconds,
        "utilisation": of_all("computed_s") / available,
        "drawn_share": of_all("drawn_s") / available,
        "begin_share": of_all("began_s") / available,
        "drain_share": of_all("drained_s") / available,
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
    """Returns how many times as many gradients are computed per second."""
    return float(ours["gradients_per_s"] / theirs["gradients_per_s"])


def less_accurate(ours: Row, theirs: Row) -> float:
    """Returns by how many points the others are more accurate, if both have trained to the end."""
    if ours["target"] is None and not (ours["stopped_early"] and theirs["stopped_early"]):
        return 100.0
    return float(100 * (theirs["accuracy"] - ours["accuracy"]))


def sooner_at_equal_accuracy(ours: Row, theirs: Row) -> float:
    """Returns how many times as long the others take to the accuracy that both reach; of curves."""
    accuracy = min(ours["accuracy"], theirs["accuracy"])
    mine, others = (seconds_until(one["curve"], accuracy) for one in (ours, theirs))
    return others / mine if mine > 0 else 0.0


def compare(
    rows: Sequence[Row], case: str, way: str, over: str, how: Callable[[Row, Row], float]
) -> float | None:
    """Returns the median over the seeds of what compares two ways; None if they were not run."""
    of = {(row["way"], row["seed"]): row for row in rows if row["case"] == case}
    seeds = [seed for name, seed in of if name == way and (over, seed) in of]
    return statistics.median(how(of[way, s], of[over, s]) for s in seeds) if seeds else None


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
        "bound": case.bound(),
        "bound_without_exchange": case.bound(case.step_ms() - case.exchange_ms),
        "bound_with_measured_step": None if measured is None else case.bound(measured),
    }


def gains(of_cases: Sequence[Row], rows: Sequence[Row]) -> list[dict[str, Any]]:
    """Returns a row for each case and way: its gains over Horovod, and the most there could be."""
    found = []
    for case in of_cases:
        name, bound = case["case"], max(case["bound"], case["bound_with_measured_step"] or 0.0)
        for way in dict.fromkeys(row["way"] for row in rows if row["case"] == name):
            to_loss = compare(rows, name, way, HOROVOD, sooner) if case["target"] else None
            found.append(
                {
                    "kind": GAINS,
                    "case": name,
                    "way": way,
                    "bound": bound,
                    "time_to_loss": to_loss,
                    "fraction_of_bound": None if to_loss is None else to_loss / bound,
                    "gradients_per_s": compare(rows, name, way, HOROVOD, faster),
                    "accuracy_gap": compare(rows, name, way, HOROVOD, less_accurate),
                    "thesis": _THESIS.get((name, way)),
                }
            )
    return found


def claims_of(found: Sequence[Row], rows: Sequence[Row], curves: Sequence[Row]) -> dict[str, Claim]:
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
            paper = _THESIS_CLAIMS.get(name)
            claims[name] = Claim(value, unit, target, better, paper, emulated=True)

    def gained(figure: str, case: str = "resnet", way: str = RNA) -> float | None:
        value: float | None = of[case, way][figure] if (case, way) in of else None
        return value

    def ours(figure: str) -> float | None:
        values = [r[figure] for r in rows if r["case"] == "resnet" and r["way"] == RNA]
        return statistics.median(values) if values else None

    claim("rna.fraction_of_bound", gained("fraction_of_bound"), 0.9, unit="share")
    claim("rna.time_to_loss_vs_horovod", gained("time_to_loss"), 1.6)
    claim("rna.gradients_per_second_vs_horovod", gained("gradients_per_s"), 1.6)
    claim("rna.time_to_loss_lstm_vs_horovod", gained("time_to_loss", "lstm"), 1.7)
    for case in ("transformer", "vgg"):
        claim(f"rna.time_to_loss_{case}_vs_horovod", gained("time_to_loss", case), None)
    for case in ("lstm", "transformer", "vgg"):
        claim(
            f"rna.fraction_of_bound.{case}", gained("fraction_of_bound", case), None, unit="share"
        )
    grouped = gained("fraction_of_bound", "mixed", GROUPED)
    claim("rna_hierarchical.fraction_of_bound", grouped, None, unit="share")
    eager = compare(rows, "resnet", RNA, EAGER, sooner)
    claim("rna.time_to_loss_vs_eager_sgd", eager, 1.15)
    pairs = compare(curves, "resnet", RNA, ADPSGD, sooner_at_equal_accuracy)
    claim("rna.time_to_loss_vs_adpsgd_at_equal_accuracy", pairs, None)
    mixed = gained("time_to_loss", "mixed", GROUPED)
    claim("rna_hierarchical.time_to_loss_mixed_vs_horovod", mixed, 1.8)
    claim("rna.accuracy_gap", gained("accuracy_gap", "accuracy"), 0.5, "lower", "points")
    claim("rna.worker_utilisation", ours("utilisation"), 0.95, unit="share")
    claim("rna.drawn_share", ours("drawn_share"), None, unit="share")  # without what is on top
    even = gained("gradients_per_s", "even")
    claim("rna.overhead_even", None if even is None else 1 / even, 1.05, "lower")
    claim("rna.copy_share", ours("copy_share"), None, "lower", "share")
    probes = rna_probes.speedup(rna_probes.lasting_tasks, _PROBES, seed=0)
    claim("rna.probe_speedup", probes, 1.5, unit="x, simulated")
    return claims


def summarize(
    measured: Sequence[tuple[Case, Sequence[Run]]], environment: Mapping[str, Any]
) -> Report:
    """Returns the report."""
    rows = [row_of(case, run) for case, runs in measured for run in runs]
    curves = [curve_of(case, run) for case, runs in measured for run in runs]
    of_cases = [row_of_case(case, rows) for case, _ in measured]
    found = gains(of_cases, rows)
    return Report(
        "rna",
        claims_of(found, rows, curves),
        [*of_cases, *found, *rna_probes.rows(_PROBES), *rows, *curves],
        environment,
        unprinted=(TRAININGS, CURVES),
        idle_share=min((row["cpu_idle"] for row in rows), default=None),
    )

"""Linear models by CoCoA against scikit-learn's solvers, one thread each (Chicle, section 5)."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from trepak.scripts.bench.chicle_cases import CASES
from trepak.scripts.bench.ranks import run_alone
from trepak.scripts.idle_watch import undisturbed
from trepak.scripts.report import Claims

FITS = "seconds of fit to 1e-3 of the optimum, one thread each"
ROUNDS = "the same, of each round"
OURS = "trepak"
NEAR = 1e-3  # of the optimal objective, how far above it a model may be
CLAIMED = "hinge"

_TARGET = 1.0
_SAMPLES, _QUICK_SAMPLES = 200_000, 5_000
_ROUNDS, _REPORTED_ROUNDS, _QUICK_ROUNDS = 5, 3, 1
_TIMEOUT = 300.0
_ONE_THREAD = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")


@dataclass(frozen=True)
class Wanted:
    """What the process is to measure.

    Attributes:
        data_sets: names of those of `CASES`.
        samples: of each.
        rounds: by loss, how many.
    """

    data_sets: tuple[str, ...]
    samples: int
    rounds: Mapping[str, int]


def measure(quick: bool) -> list[dict[str, Any]]:
    """Returns a row for each round, data set, loss and way; see `ROUNDS`.

    Raises:
        JobError: the process that measures has failed.
    """
    losses = dict.fromkeys(("squared_hinge", "logistic", "ridge"), _REPORTED_ROUNDS)
    rounds = {CLAIMED: _QUICK_ROUNDS} if quick else {CLAIMED: _ROUNDS, **losses}
    names = tuple(case.name for case in CASES if case.algorithm == "cocoa")
    wanted = Wanted(names, _QUICK_SAMPLES if quick else _SAMPLES, rounds)
    threads = dict.fromkeys(_ONE_THREAD, "1")
    rows: list[dict[str, Any]] = run_alone("chicle_liblinear_worker", wanted, _TIMEOUT, threads)
    return rows


def summarize(rounds: Sequence[Mapping[str, Any]], claims: Claims) -> list[dict[str, Any]]:
    """Adds the claims of what was measured, and returns a row for each way.

    A ratio is the median over rounds of our time to the other's; rounds in which others took the
    CPU don't count.

    Args:
        rounds: what `measure` returned.
        claims: to add to.
    """
    rows = []
    for of in dict.fromkeys((row["data_set"], row["loss"]) for row in rounds):
        mine = [row for row in rounds if (row["data_set"], row["loss"]) == of]
        ways = {way: [row for row in mine if row["way"] == way] for way in _names(mine)}
        ratios = {way: _ratio(ways[OURS], others) for way, others in ways.items() if way != OURS}
        for way, some in ways.items():
            rows.append(
                {
                    "kind": FITS,
                    "data_set": of[0],
                    "loss": of[1],
                    "way": way,
                    "tol": some[0]["tol"],
                    "passes": statistics.mean(row["passes"] for row in some),
                    "above_optimum": max(row["above_optimum"] for row in some),
                    "seconds": statistics.median(row["seconds"] for row in some),
                    "ours_to_it": ratios.get(way),
                    "cpu_idle": min(row["idle"] for row in some),
                }
            )
        if of[1] == CLAIMED:
            worst = max(ratios.values())
            name = f"chicle.cocoa_vs_liblinear_time.{of[0]}"
            claims.add(name, worst, _TARGET, "lower", emulated=False)
    return rows


def _names(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    return list(dict.fromkeys(row["way"] for row in rows))


def _ratio(ours: Sequence[Mapping[str, Any]], others: Sequence[Mapping[str, Any]]) -> float:
    pairs = undisturbed(
        zip(ours, others, strict=True), lambda pair: max(float(one["stolen"]) for one in pair)
    )
    return statistics.median(mine["seconds"] / theirs["seconds"] for mine, theirs in pairs)

"""`trepak bench trace`: what a timeline costs a step of `fit`."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from typing import Any

from trepak.scripts.bench.ranks import run_here
from trepak.scripts.entrance import console
from trepak.scripts.report import Claim, Options, Report
from trepak.scripts.surroundings import Surroundings

SUMMARY = "step time of fit with a timeline against without"

METHODS = ON, OFF = "timeline on", "timeline off"
_TARGET = 1.02
_FULL, _QUICK = (40, 25), (3, 3)  # rounds, and turns per round: four steps, two of each method
_TIMEOUT = {True: 170.0, False: 1500.0}


def measure(options: Options) -> Report:
    """Runs the bench.

    Raises:
        JobError: the processes failed.
    """
    rounds, turns = _QUICK if options.quick else _FULL
    surroundings = Surroundings()
    with console(stderr=True).status("training with and without a timeline"):
        spec = {"rounds": rounds, "turns": turns}
        outcomes = run_here(options.np, "bench_trace_worker", spec, _TIMEOUT[options.quick])
    return summarize(outcomes, surroundings.environment(f"horovodrun -np {options.np} --mpi"))


def summarize(outcomes: Sequence[dict[str, Any]], environment: dict[str, Any]) -> Report:
    """Returns the report of what the ranks measured.

    Args:
        outcomes: by rank, `rounds`: a list of {method: seconds of each step}, and `bytes` per step.
        environment: see `Surroundings`.
    """
    rows, ratios = [], []
    for number in range(len(outcomes[0]["rounds"])):
        steps = {
            method: _slowest([one["rounds"][number][method] for one in outcomes])
            for method in METHODS
        }
        ratios += [on / off for on, off in zip(*map(_by_turn, steps.values()), strict=True)]
        rows.append(
            {
                "kind": "median step time of each round",
                "round": number + 1,
                "on_ms": 1000 * statistics.median(steps[ON]),
                "off_ms": 1000 * statistics.median(steps[OFF]),
            }
        )
    low, ratio, high = statistics.quantiles(ratios, n=4)
    spread = {
        "kind": "a turn with a timeline to one without",
        "turns": len(ratios),
        "median": ratio,
        "lower_quartile": low,
        "upper_quartile": high,
        # Of the median of as many values with such quartiles, were they normally distributed.
        "standard_error": 1.253 * (high - low) / 1.349 / math.sqrt(len(ratios)),
    }
    sizes = [
        {"kind": "size of the files", "rank": rank, "bytes_per_step": one["bytes"]}
        for rank, one in enumerate(outcomes)
    ]
    claims = {"trace.overhead": Claim(ratio, "x", _TARGET, "lower")}
    return Report("trace", claims, [*rows, spread, *sizes], environment)


def _slowest(ranks: Sequence[Sequence[float]]) -> list[float]:
    """Returns the times of BSP's steps, which are over when all ranks have taken them."""
    return [max(times) for times in zip(*ranks, strict=True)]


def _by_turn(times: Sequence[float]) -> list[float]:
    """Returns the sums of the two steps that each turn has of a method."""
    return [a + b for a, b in zip(times[::2], times[1::2], strict=True)]

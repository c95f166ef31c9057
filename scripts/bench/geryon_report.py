"""What `trepak bench geryon` says of its measurements: rows and claims."""

from __future__ import annotations

import math
import random
import statistics
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from trepak.scripts.bench import geryon_equations as equations
from trepak.scripts.bench import geryon_order
from trepak.scripts.bench.geryon_alternatives import OVER_FLOWS, PARTITIONED, PLAIN
from trepak.scripts.bench.geryon_arms import (
    ALONE,
    ALTERNATIVES,
    END_HOST,
    GERYON,
    MOST_STOLEN,
    RING,
    SLICING,
    SUMS,
    THRESHOLD_K,
    VANILLA,
    Arm,
    Cell,
)
from trepak.scripts.bench.geryon_figures import LOOKUPS, POTENTIAL, potential_rows
from trepak.scripts.report import Claim, Report

Outcomes = Sequence[Sequence[Mapping[str, Any]]]  # by rank, by round: arm → what it measured

_TARGETS = {10: "geryon.efficiency", 40: "geryon.efficiency40"}
# Slicing threshold in K; target and the paper's value of Geryon's throughput over the end host's.
_TABLE_4 = (
    (THRESHOLD_K, 0.0, 279.2 / 272.0),
    (512, 0.0, 276.0 / 268.0),
    (256, 1.02, 272.8 / 216.8),
)
_DRAWS = 50  # random orders of pulls, whose mean predicts


def step_seconds(cell: Cell, outcomes: Outcomes, arm: Arm) -> tuple[list[float], int]:
    """Returns an arm's mean seconds per step in each round that nobody disturbed; else in all.

    A step of bulk synchronous training is over when all ranks have taken it.

    Returns:
        The seconds, and in how many rounds nobody disturbed it.
    """
    rounds = []
    for number in range(cell.rounds):
        parts = [rank[number][arm.name] for rank in outcomes if rank[number][arm.name]]
        seconds = max(statistics.mean(part["times"]) for part in parts)
        rounds.append((seconds, parts[0]["stolen"] <= MOST_STOLEN))
    quiet = [seconds for seconds, is_quiet in rounds if is_quiet]
    return quiet or [seconds for seconds, _ in rounds], len(quiet)


def _parts(outcomes: Outcomes, arm: Arm) -> Iterator[Mapping[str, Any]]:
    """Yields what every rank measured of an arm in each round."""
    for rank in outcomes:
        for measured in rank:
            if measured[arm.name]:
                yield measured[arm.name]


def rows_of(cell: Cell, outcomes: Outcomes) -> list[dict[str, Any]]:
    """Returns a row for each arm of a job."""
    network = cell.network
    model = network.build(cell.shrink, cell.stretch)
    layers = equations.layer_times(model, network.batch, cell.bits_per_second, cell.workers)
    alone = statistics.median(step_seconds(cell, outcomes, Arm(ALONE))[0])
    limit = equations.limit_seconds(layers)
    rows = []
    for arm in cell.arms:
        seconds, quiet = step_seconds(cell, outcomes, arm)
        step = statistics.median(seconds)
        workers = 1 if arm.way == ALONE else cell.workers
        rows.append(
            {
                "kind": cell.title,
                "purpose": cell.purpose,
                "model": network.model,
                "workers": workers,
                "gbit": cell.gbit,
                "way": arm.name,
                "step_s": step,
                "lowest_s": min(seconds),
                "highest_s": max(seconds),
                "quiet_rounds": quiet,
                "predicted_s": _predicted(arm, layers, cell.workers),
                "limit_s": equations.compute_seconds(layers) if arm.way == ALONE else limit,
                "images_per_s": workers * network.batch * cell.stretch / step,
                "efficiency": alone / step,
                "high_share": _high_share(outcomes, arm),
                "server_gbit_per_core": _served(outcomes, arm),
                "lookup_ms_p95": _percentile95(_lookups(outcomes, arm)),
                "cpu_idle": statistics.median(p["idle"] for p in _parts(outcomes, arm)),
                "cpu_stolen": statistics.median(p["stolen"] for p in _parts(outcomes, arm)),
            }
        )
    return rows


def _predicted(arm: Arm, layers: Sequence[equations.LayerTimes], workers: int) -> float | None:
    """Returns the time of an iteration by the paper's equations; None where they don't apply."""
    if arm.way == ALONE:
        return equations.compute_seconds(layers)
    if arm.way == END_HOST:
        return equations.iteration_seconds(layers, equations.in_order(layers))
    if arm.pulls_last:
        generator = random.Random(0)
        servers = workers if arm.way == VANILLA else 1
        return statistics.mean(
            equations.iteration_seconds(layers, equations.at_random(layers, generator), servers)
            for _ in range(_DRAWS)
        )
    return None


def _high_share(outcomes: Outcomes, arm: Arm) -> float | None:
    """Returns the share of the bytes that had high priority; None where all had the same."""
    sent = [part["bytes"] for part in _parts(outcomes, arm) if len(part.get("bytes", ())) > 1]
    total = sum(map(sum, sent))
    return sum(counted[0] for counted in sent) / total if total else None


def _lookups(outcomes: Outcomes, arm: Arm) -> list[float]:
    """Returns how many ms each iteration of each rank took to choose priorities.

    A thread that others keep from running takes longer: rounds that nobody disturbed, if any.
    """
    parts = list(_parts(outcomes, arm))
    quiet = [part for part in parts if part["stolen"] <= MOST_STOLEN]
    return [ms for part in quiet or parts for ms in part.get("lookup_ms", ())]


def _percentile95(values: Sequence[float]) -> float:
    return sorted(values)[math.ceil(0.95 * len(values)) - 1] if values else 0.0


def _served(outcomes: Outcomes, arm: Arm) -> float | None:
    """Returns the Gbit/s of gradients that one core sums, without what the network costs."""
    parts = list(_parts(outcomes, arm))
    seconds = sum(part.get("serving_s", 0.0) for part in parts)
    return 8e-9 * sum(part["served_bytes"] for part in parts) / seconds if seconds else None


def summarize(
    measured: Sequence[tuple[Cell, Outcomes]],
    others: Sequence[Mapping[str, Any]],
    order: Sequence[Mapping[str, Any]],
    environment: Mapping[str, Any],
) -> Report:
    """Returns the report of all jobs.

    Args:
        measured: jobs, and what their workers wrote.
        others: rows of alternatives; see `geryon_alternatives`.
        order: rows of Figure 5; see `geryon_order`.
        environment: see `Surroundings`.
    """
    tables = [(cell, rows_of(cell, outcomes)) for cell, outcomes in measured]
    rows = [row for _, table in tables for row in table]
    figures = [
        {"kind": LOOKUPS, "way": arm.name, "milliseconds": _lookups(outcomes, arm)}
        for cell, outcomes in measured
        for arm in cell.arms
        if arm.way == GERYON and cell.has_all_thresholds
    ]
    most = max(cell.workers for cell, _ in tables)
    lookups = [
        ms
        for cell, outcomes in measured
        for arm in cell.arms
        if arm.way == GERYON
        for ms in _lookups(outcomes, arm)
    ]
    claims = geryon_order.claim_of(order)
    fractions = []
    for cell, table in tables:
        if cell.purpose == ALTERNATIVES:
            claims |= _claims_over(others, {row["way"]: row["step_s"] for row in table})
        elif cell.purpose == SUMS:
            served = min(row["server_gbit_per_core"] for row in table if row["way"] != ALONE)
            claims["server.gbit_per_core"] = Claim(served, "Gbit/s", 10.0, "higher")
        elif cell.workers == most:
            claims |= _claims_of(cell, table)
            if cell.gbit == min(_TARGETS):
                geryon = next(row for row in table if row["way"] == GERYON)
                fractions.append(geryon["limit_s"] / geryon["step_s"])
    claims["geryon.fraction_of_limit"] = Claim(min(fractions), "", 0.95, "higher", None, True)
    claims["geryon.schedule_ms"] = Claim(
        _percentile95(lookups), "ms", 1.0, "lower", 1.0, emulated=True
    )
    idle = min(row["cpu_idle"] for row in [*rows, *others, *order])
    figures += potential_rows()
    return Report(
        "geryon",
        claims,
        [*rows, *others, *order, *figures],
        environment,
        unprinted=[LOOKUPS, POTENTIAL],
        idle_share=idle,
    )


def _claims_over(
    others: Sequence[Mapping[str, Any]], steps: Mapping[str, float]
) -> dict[str, Claim]:
    """Returns the claims over what users have without trepak; `steps` by way, in seconds."""
    theirs = {row["way"]: row["step_s"] for row in others}
    ratios = {
        "geryon.speedup_vs_tf_parameter_server": (theirs[PLAIN] / steps[GERYON], 2.0),
        "geryon.tf_protocol_speedup": (theirs[PARTITIONED] / theirs[OVER_FLOWS], 0.0),
        "geryon.speedup_vs_horovod_ring": (steps[RING] / steps[GERYON], 0.0),
    }
    return {
        name: Claim(value, "x", target, "higher", emulated=True)
        for name, (value, target) in ratios.items()
    }


def _claims_of(cell: Cell, table: Sequence[Mapping[str, Any]]) -> dict[str, Claim]:
    """Returns the claims that a network's job with the most workers stands for."""
    name, gbit = cell.network.model, cell.gbit
    steps = {row["way"]: row["step_s"] for row in table}
    geryon = steps[GERYON]
    paper = cell.network.efficiency[gbit]
    claims = {
        f"{_TARGETS[gbit]}.{name}": Claim(
            steps[ALONE] / geryon, "", paper[-1], "higher", paper[-1], emulated=True
        )
    }
    if gbit == 10 and name == "yolo":
        claims["geryon.speedup_vs_vanilla.yolo"] = Claim(
            steps[VANILLA] / geryon, "x", 4.0, "higher", 4.37, emulated=True
        )
        claims["geryon.speedup_vs_partition_slicing"] = Claim(
            steps[SLICING] / geryon, "x", 1.2, "higher", 1.2, emulated=True
        )
    for slice_k, target, reported in _TABLE_4:
        ours, theirs = Arm(GERYON, slice_k).name, Arm(END_HOST, slice_k).name
        if gbit == 10 and name == "vgg19" and ours in steps and theirs in steps:
            claims[f"geryon.speedup_vs_end_host.{slice_k}K"] = Claim(
                steps[theirs] / steps[ours], "x", target, "higher", reported, emulated=True
            )
    return claims

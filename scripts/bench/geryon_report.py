"""What `trepak bench geryon` says of its measurements: rows and claims."""

from __future__ import annotations

import itertools
import math
import random
import statistics
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from trepak.scripts.bench import exchanges, geryon_order
from trepak.scripts.bench import geryon_equations as equations
from trepak.scripts.bench.exchanges import Job, Method
from trepak.scripts.bench.geryon_alternatives import OVER_FLOWS, PARTITIONED, PLAIN
from trepak.scripts.bench.geryon_figures import LOOKUPS, POTENTIAL, potential_rows
from trepak.scripts.idle_watch import MOST_STOLEN, undisturbed
from trepak.scripts.report import Claims, Report

Outcomes = Sequence[Sequence[Mapping[str, Any]]]  # by rank, by round: method → what it measured

_TARGETS = {10: "geryon.efficiency", 40: "geryon.efficiency40"}
# Slicing threshold in K; target and the paper's value of Geryon's throughput over the end host's.
_TABLE_4 = (
    (exchanges.THRESHOLD_K, 0.0, 279.2 / 272.0),
    (512, 0.0, 276.0 / 268.0),
    (256, 1.02, 272.8 / 216.8),
)
_DRAWS = 50  # random orders of pulls, whose mean predicts


def rounds_of(outcomes: Outcomes, method: Method) -> list[list[Mapping[str, Any]]]:
    """Returns by round what each rank measured of a method that had a part in it."""
    rounds = zip(*outcomes, strict=True)
    return [[one[method.name] for one in ranks if one[method.name]] for ranks in rounds]


def quiet_rounds(outcomes: Outcomes, method: Method) -> list[list[Mapping[str, Any]]]:
    """Returns the rounds in which nobody disturbed rank 0; all, if there are none."""
    return undisturbed(rounds_of(outcomes, method), lambda ranks: ranks[0]["stolen"])


def median_of(outcomes: Outcomes, method: Method, figure: str) -> float:
    """Returns the median of a figure over all ranks and rounds."""
    return statistics.median(part[figure] for part in _parts(outcomes, method))


def step_seconds(outcomes: Outcomes, method: Method) -> list[float]:
    """Returns a method's mean seconds per step in each quiet round; see `quiet_rounds`.

    A step of bulk synchronous training is over when all ranks have taken it.
    """
    return [
        max(statistics.mean(part["times"]) for part in ranks)
        for ranks in quiet_rounds(outcomes, method)
    ]


def _parts(outcomes: Outcomes, method: Method) -> Iterator[Mapping[str, Any]]:
    """Yields what every rank measured of a method in each round."""
    return itertools.chain.from_iterable(rounds_of(outcomes, method))


def rows_of(job: Job, outcomes: Outcomes) -> list[dict[str, Any]]:
    """Returns a row for each method of a job."""
    network = job.network
    model = network.build(job.shrink, job.stretch)
    layers = equations.layer_times(model, network.batch, job.bits_per_second, job.workers)
    alone = statistics.median(step_seconds(outcomes, Method(exchanges.ALONE)))
    limit = equations.limit_seconds(layers)
    rows = []
    for method in job.methods:
        seconds = step_seconds(outcomes, method)
        step = statistics.median(seconds)
        workers = 1 if method.kind == exchanges.ALONE else job.workers
        rows.append(
            {
                "kind": job.title,
                "purpose": job.purpose,
                "model": network.model,
                "workers": workers,
                "gbit": job.gbit,
                "way": method.name,
                "step_s": step,
                "lowest_s": min(seconds),
                "highest_s": max(seconds),
                "quiet_rounds": sum(
                    ranks[0]["stolen"] <= MOST_STOLEN for ranks in rounds_of(outcomes, method)
                ),
                "predicted_s": _predicted(method, layers, job.workers),
                "limit_s": equations.compute_seconds(layers)
                if method.kind == exchanges.ALONE
                else limit,
                "images_per_s": workers * network.batch * job.stretch / step,
                "efficiency": alone / step,
                "high_share": _high_share(outcomes, method),
                "server_gbit_per_core": _served(outcomes, method),
                "lookup_ms_p95": _percentile95(_lookups(outcomes, method)),
                "cpu_idle": median_of(outcomes, method, "idle"),
                "cpu_stolen": median_of(outcomes, method, "stolen"),
            }
        )
    return rows


def _predicted(
    method: Method, layers: Sequence[equations.LayerTimes], workers: int
) -> float | None:
    """Returns the time of an iteration by the paper's equations; None where they don't apply."""
    if method.kind == exchanges.ALONE:
        return equations.compute_seconds(layers)
    if method.kind == exchanges.END_HOST:
        return equations.iteration_seconds(layers, equations.in_order(layers))
    if method.pulls_last:
        generator = random.Random(0)
        servers = workers if method.kind == exchanges.VANILLA else 1
        return statistics.mean(
            equations.iteration_seconds(layers, equations.at_random(layers, generator), servers)
            for _ in range(_DRAWS)
        )
    return None


def _high_share(outcomes: Outcomes, method: Method) -> float | None:
    """Returns the share of the bytes that had high priority; None where all had the same."""
    sent = [part["bytes"] for part in _parts(outcomes, method) if len(part.get("bytes", ())) > 1]
    total = sum(map(sum, sent))
    return sum(counted[0] for counted in sent) / total if total else None


def _lookups(outcomes: Outcomes, method: Method) -> list[float]:
    """Returns how many ms each iteration of each rank took to choose priorities.

    A thread that others keep from running takes longer: rounds that nobody disturbed, if any.
    """
    quiet = undisturbed(_parts(outcomes, method), lambda part: part["stolen"])
    return [ms for part in quiet for ms in part.get("lookup_ms", ())]


def _percentile95(values: Sequence[float]) -> float:
    return sorted(values)[math.ceil(0.95 * len(values)) - 1] if values else 0.0


def _served(outcomes: Outcomes, method: Method) -> float | None:
    """Returns the Gbit/s of gradients that one core sums, without what the network costs."""
    parts = list(_parts(outcomes, method))
    seconds = sum(part.get("serving_s", 0.0) for part in parts)
    return 8e-9 * sum(part["served_bytes"] for part in parts) / seconds if seconds else None


def summarize(
    measured: Sequence[tuple[Job, Outcomes]],
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
    tables = [(job, rows_of(job, outcomes)) for job, outcomes in measured]
    rows = [row for _, table in tables for row in table]
    lookups, figures = [], []
    for job, outcomes in measured:
        for method in job.methods:
            if method.kind == exchanges.GERYON:
                lookups += (found := _lookups(outcomes, method))
                if job.has_all_thresholds:
                    figures.append({"kind": LOOKUPS, "way": method.name, "milliseconds": found})
    most = max(job.workers for job, _ in tables)
    claims = Claims()
    speedup = geryon_order.speedup_of(order)
    claims.add("geryon.urgent_speedup_vs_end_host", speedup, 1.5, paper=2.0)
    fractions = []
    for job, table in tables:
        steps = {row["way"]: row["step_s"] for row in table}
        if job.purpose == exchanges.ALTERNATIVES:
            _claim_over(claims, others, steps)
        elif job.purpose == exchanges.SUMS:
            served = min(
                row["server_gbit_per_core"] for row in table if row["way"] != exchanges.ALONE
            )
            claims.add("server.gbit_per_core", served, 10.0, unit="Gbit/s", emulated=False)
        elif job.workers == most:
            _claim_of(claims, job, steps)
            if job.gbit == min(_TARGETS):
                geryon = next(row for row in table if row["way"] == exchanges.GERYON)
                fractions.append(geryon["limit_s"] / geryon["step_s"])
    claims.add("geryon.fraction_of_limit", min(fractions), 0.95, unit="")
    claims.add("geryon.schedule_ms", _percentile95(lookups), 1.0, "lower", "ms", paper=1.0)
    idle = min(row["cpu_idle"] for row in [*rows, *others, *order])
    return Report(
        "geryon",
        claims,
        [*rows, *others, *order, *figures, *potential_rows()],
        environment,
        unprinted=[LOOKUPS, POTENTIAL],
        idle_share=idle,
    )


def _claim_over(
    claims: Claims, others: Sequence[Mapping[str, Any]], steps: Mapping[str, float]
) -> None:
    """Claims over what users have without trepak; `steps` by method, in seconds."""
    theirs = {row["way"]: row["step_s"] for row in others}
    ours, ring = steps[exchanges.GERYON], steps[exchanges.RING]
    claims.add("geryon.speedup_vs_tf_parameter_server", theirs[PLAIN] / ours, 2.0)
    claims.add("geryon.tf_protocol_speedup", theirs[PARTITIONED] / theirs[OVER_FLOWS], 0.0)
    claims.add("geryon.speedup_vs_horovod_ring", ring / ours, 0.0)


def _claim_of(claims: Claims, job: Job, steps: Mapping[str, float]) -> None:
    """Claims what a network's job with the most workers stands for; `steps` as above."""
    name, gbit = job.network.model, job.gbit
    geryon, paper = steps[exchanges.GERYON], job.network.efficiency[gbit][-1]
    efficiency = steps[exchanges.ALONE] / geryon
    claims.add(f"{_TARGETS[gbit]}.{name}", efficiency, paper, unit="", paper=paper)
    if gbit == 10 and name == "yolo":
        vanilla, slicing = steps[exchanges.VANILLA] / geryon, steps[exchanges.SLICING] / geryon
        claims.add("geryon.speedup_vs_vanilla.yolo", vanilla, 4.0, paper=4.37)
        claims.add("geryon.speedup_vs_partition_slicing", slicing, 1.2, paper=1.2)
    for slice_k, target, reported in _TABLE_4:
        ours = steps.get(Method(exchanges.GERYON, slice_k).name)
        theirs = steps.get(Method(exchanges.END_HOST, slice_k).name)
        if gbit == 10 and name == "vgg19" and ours and theirs:
            end_host = f"geryon.speedup_vs_end_host.{slice_k}K"
            claims.add(end_host, theirs / ours, target, paper=reported)

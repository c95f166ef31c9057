"""The lab's part of `trepak bench bsp`: BSP on slow links, beside the best of raw Horovod."""

from __future__ import annotations

import dataclasses
import statistics
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from trepak.scripts.bench import exchanges, plots
from trepak.scripts.bench import geryon_equations as equations
from trepak.scripts.bench.bench_geryon import run_job
from trepak.scripts.bench.exchanges import Job, Method, Network
from trepak.scripts.bench.geryon_report import Outcomes, median_of, quiet_rounds
from trepak.scripts.lab.network import LabError
from trepak.scripts.report import Claim, Claims, Report

RAW = (exchanges.RAW_GROUPED, exchanges.RAW_EACH)

_HOSTS, _SHRINK, _BATCH = 4, 80.0, 32
_PAPERS = {network.model: network for network in exchanges.NETWORKS}
_TRANSFORMER = Network("transformer", _BATCH, "coarse", 15.0, options={"layers": 12})
_RAW_TARGET = 1.02
_LIMIT_TARGETS = {"vgg19_10g": 0.93, "resnet50_10g": 0.9, "transformer_10g": 0.9}
# HOROVOD_CYCLE_TIME in ms and HOROVOD_FUSION_THRESHOLD in MiB: Horovod's own, and what is 1% faster
# for raw Horovod by `--tune`. `overlap` needs the short cycle.
_OWN, _RESNET50_10G = (1, 128.0), (20, 128.0)
_CYCLES, _FUSIONS = (1, 5, 20), (128.0, 16.0, 2.0)  # that `--tune` tries


def jobs(quick: bool = False) -> list[tuple[str, Job]]:
    """Returns the jobs, and the names that claims of each end with.

    S: a collective of four ranks costs two cores some 12 ms whatever it is, and a cluster's less
    than 1 ms, so that many small ones need a larger S.
    """
    vgg19, resnet50, alexnet = (
        dataclasses.replace(_PAPERS[model], batch=_BATCH)
        for model in ("vgg19", "resnet50", "alexnet")
    )
    if quick:
        job = _job(alexnet, 10, 1.0, (*RAW, exchanges.BSP, exchanges.BSP_OVERLAP))
        return [("alexnet_10g", dataclasses.replace(job, workers=2, rounds=1, steps=2))]
    overlap = (exchanges.RAW_EACH, exchanges.BSP_OVERLAP, exchanges.GERYON)
    return [
        (
            "vgg19_10g",
            _job(vgg19, 10, 2.0, (*RAW, exchanges.BSP, exchanges.BSP_OVERLAP, exchanges.GERYON)),
        ),
        ("resnet50_10g", _job(resnet50, 10, 8.0, (*RAW, exchanges.BSP), _RESNET50_10G)),
        ("resnet50_10g", _job(resnet50, 10, 8.0, overlap)),
        ("transformer_10g", _job(_TRANSFORMER, 10, _TRANSFORMER.stretch, overlap)),
        ("vgg19_1g", _job(vgg19, 1, 1.0, (*RAW, exchanges.BSP))),
        ("resnet50_1g", _job(resnet50, 1, 1.0, (*RAW, exchanges.BSP))),
    ]


def _job(
    network: Network,
    gbit: int,
    stretch: float,
    kinds: Sequence[str],
    settings: tuple[int, float] = _OWN,
) -> Job:
    cycle, fusion = settings
    # Rounds are for methods that are compared with each other.
    once = gbit == 1 or exchanges.RAW_GROUPED not in kinds
    return Job(
        network,
        _HOSTS,
        gbit,
        _SHRINK,
        [Method(kind) for kind in kinds],
        rounds=1 if once else 2,
        steps=3 if once else 2,
        warm=1 if gbit == 10 else 0,  # nothing is pipelined there
        attempts=1,
        stretch=stretch,
        cycle_ms=cycle,
        fusion_mb=fusion,
    )


def measure(quick: bool, say: Callable[[str], None]) -> Summary:
    """Runs all jobs.

    Args:
        quick: run a small one instead.
        say: is told what is going on.

    Returns:
        What they came to; where no lab can be made, a row that says why.

    Raises:
        JobError: the ranks failed.
    """
    try:
        measured = [(name, job, _run(job, say)) for name, job in jobs(quick)]
    except LabError as error:
        return Summary([{"kind": "in a lab: not measured here", "why": str(error)}], {}, None)
    return summarize(measured)


def _run(job: Job, say: Callable[[str], None]) -> Outcomes:
    say(job.title)
    return run_job(job)[0]


def step_seconds(outcomes: Outcomes, method: Method) -> float:
    """Returns a method's median step, of those that nobody disturbed if there are any.

    A step of bulk synchronous training is over when all ranks have taken it.
    """
    return statistics.median(
        max(times)
        for ranks in quiet_rounds(outcomes, method)
        for times in zip(*(part["times"] for part in ranks), strict=True)
    )


@dataclass(frozen=True)
class Summary:
    """What the lab's part comes to.

    Attributes:
        rows: see `rows_of`.
        claims: by ID.
        idle_share: the least share of the CPU that was idle; None if nothing was measured.
    """

    rows: Sequence[dict[str, Any]]
    claims: dict[str, Claim]
    idle_share: float | None


NOTHING = Summary((), {}, None)


def summarize(measured: Sequence[tuple[str, Job, Outcomes]]) -> Summary:
    """Turns what the ranks measured into rows and claims."""
    rows: list[dict[str, Any]] = []
    claims = Claims()
    for name, job, outcomes in measured:
        table = {row["way"]: row for row in rows_of(job, outcomes)}
        rows += table.values()
        if set(RAW) <= set(table):
            ratio = table[exchanges.BSP]["to_best_raw"]
            claims.add(f"bsp.step_time_vs_raw_horovod.{name}", ratio, _RAW_TARGET, "lower")
        if exchanges.BSP_OVERLAP in table:
            fraction, target = table[exchanges.BSP_OVERLAP]["of_limit"], _LIMIT_TARGETS.get(name)
            claims.add(f"bsp.fraction_of_limit.{name}", fraction, target, unit="")
    idle = min(row["cpu_idle"] for row in rows if row["cpu_idle"] is not None)
    return Summary(rows, claims, idle)


def rows_of(job: Job, outcomes: Outcomes) -> list[dict[str, Any]]:
    """Returns a row for each method of a job, and for each limit."""
    model = job.network.build(job.shrink, job.stretch)
    layers = equations.layer_times(
        model, job.network.batch, job.bits_per_second, workers=job.workers
    )
    limit = equations.limit_seconds(layers)
    seconds = {method.kind: step_seconds(outcomes, method) for method in job.methods}
    best = min(seconds[kind] for kind in RAW if kind in seconds)
    measured = [(kind, s, median_of(outcomes, Method(kind), "idle")) for kind, s in seconds.items()]
    limits = [
        ("limit: computing", equations.compute_seconds(layers), None),
        ("limit: communicating", 2 * equations.transfer_seconds(layers), None),
        ("limit: computing and exposed tail", equations.tail_seconds(layers), None),
    ]
    return [
        {
            "kind": f"{job.title}, cycle {job.cycle_ms} ms, fusion {job.fusion_mb} MiB",
            "way": kind,
            "step_ms": 1000 * step,
            "to_best_raw": step / best,
            "of_limit": limit / step,
            "cpu_idle": idle,
        }
        for kind, step, idle in [*measured, *limits]
    ]


def draw(report: Report, figure: Any) -> None:
    """Draws how many times as long as the limit each step is, by case and method."""
    axes = figure.subplots()
    measured = [row for row in report.rows if row.get("of_limit") and row["cpu_idle"] is not None]
    cases = list(dict.fromkeys(row["kind"] for row in measured))
    slowness = {
        method: {row["kind"]: 1 / row["of_limit"] for row in plots.of_method(measured, method)}
        for method in dict.fromkeys(row["way"] for row in measured)
    }
    plots.bars(axes, cases, slowness, horizontal=True)
    axes.set_yticks(range(len(cases)), [case.split(", F")[0] for case in cases])
    axes.axvline(1.0, color="black", linewidth=0.8, linestyle="--")
    axes.invert_yaxis()
    axes.set_xlabel("step time / max(computing, communicating), in a lab (emulated)")
    axes.legend(frameon=False, fontsize=8)


def tune(say: Callable[[str], None]) -> Iterator[dict[str, Any]]:
    """Yields rows of what raw Horovod takes by its settings: cycle times, then fusion thresholds.

    Raises:
        JobError: the ranks failed.
        LabError: no lab can be made here.
    """
    for name, job in jobs():
        if set(RAW) <= {method.kind for method in job.methods}:
            raw = dataclasses.replace(job, methods=[Method(kind) for kind in RAW], rounds=1)
            tried: dict[tuple[int, float], float] = {}
            for cycle in _CYCLES:
                yield _try(name, raw, cycle, _FUSIONS[0], tried, say)
            best_cycle, _ = min(tried, key=tried.__getitem__)
            for fusion in _FUSIONS[1:]:
                yield _try(name, raw, best_cycle, fusion, tried, say)


def _try(
    name: str,
    job: Job,
    cycle: int,
    fusion: float,
    tried: dict[tuple[int, float], float],
    say: Callable[[str], None],
) -> dict[str, Any]:
    outcomes = _run(dataclasses.replace(job, cycle_ms=cycle, fusion_mb=fusion), say)
    seconds = {kind: step_seconds(outcomes, Method(kind)) for kind in RAW}
    tried[cycle, fusion] = min(seconds.values())
    return {
        "kind": "raw Horovod by its settings",
        "case": name,
        "cycle_ms": cycle,
        "fusion_mib": fusion,
        **{f"{kind}, ms": 1000 * step for kind, step in seconds.items()},
        "cpu_idle": min(median_of(outcomes, Method(kind), "idle") for kind in RAW),
    }

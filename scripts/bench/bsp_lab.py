"""The lab's part of `trepak bench bsp`: BSP on slow links, beside the best of raw Horovod."""

from __future__ import annotations

import dataclasses
import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from trepak.scripts.bench import geryon_equations as equations
from trepak.scripts.bench.bench_geryon import run_cell
from trepak.scripts.bench.geryon_arms import (
    BSP,
    BSP_OVERLAP,
    GERYON,
    MOST_STOLEN,
    NETWORKS,
    RAW_EACH,
    RAW_GROUPED,
    Arm,
    Cell,
    Network,
)
from trepak.scripts.bench.geryon_report import Outcomes
from trepak.scripts.lab.network import LabError
from trepak.scripts.launcher import JobError
from trepak.scripts.report import Claim, Report

RAW = (RAW_GROUPED, RAW_EACH)

_HOSTS, _SHRINK, _BATCH = 4, 80.0, 32
_PAPERS = {network.model: network for network in NETWORKS}
_TRANSFORMER = Network("transformer", _BATCH, "coarse", 15.0, options={"layers": 12})
_RAW_TARGET = 1.02
_LIMIT_TARGETS = {"vgg19_10g": 0.93, "resnet50_10g": 0.9, "transformer_10g": 0.9}
# HOROVOD_CYCLE_TIME in ms and HOROVOD_FUSION_THRESHOLD in MiB: Horovod's own, and what is 1% faster
# for raw Horovod by `--tune`. `overlap` needs the short cycle.
_OWN, _RESNET50_10G = (1, 128.0), (20, 128.0)
_CYCLES, _FUSIONS = (1, 5, 20), (128.0, 16.0, 2.0)  # that `--tune` tries


def cells(quick: bool = False) -> list[tuple[str, Cell]]:
    """Returns the jobs, and the names that claims of each end with.

    S: a collective of four ranks costs two cores some 12 ms whatever it is, and a cluster's less
    than 1 ms, so that many small ones need a larger S.
    """
    vgg19, resnet50, alexnet = (
        dataclasses.replace(_PAPERS[model], batch=_BATCH)
        for model in ("vgg19", "resnet50", "alexnet")
    )
    if quick:
        cell = _cell(alexnet, 10, 1.0, (*RAW, BSP, BSP_OVERLAP))
        return [("alexnet_10g", dataclasses.replace(cell, workers=2, rounds=1, steps=2))]
    overlap = (RAW_EACH, BSP_OVERLAP, GERYON)
    return [
        ("vgg19_10g", _cell(vgg19, 10, 2.0, (*RAW, BSP, BSP_OVERLAP, GERYON))),
        ("resnet50_10g", _cell(resnet50, 10, 8.0, (*RAW, BSP), _RESNET50_10G)),
        ("resnet50_10g", _cell(resnet50, 10, 8.0, overlap)),
        ("transformer_10g", _cell(_TRANSFORMER, 10, _TRANSFORMER.stretch, overlap)),
        ("vgg19_1g", _cell(vgg19, 1, 1.0, (*RAW, BSP))),
        ("resnet50_1g", _cell(resnet50, 1, 1.0, (*RAW, BSP))),
    ]


def _cell(
    network: Network,
    gbit: int,
    stretch: float,
    ways: Sequence[str],
    settings: tuple[int, float] = _OWN,
) -> Cell:
    cycle, fusion = settings
    # Rounds are for arms that are compared with each other.
    once = gbit == 1 or RAW_GROUPED not in ways
    return Cell(
        network,
        _HOSTS,
        gbit,
        _SHRINK,
        [Arm(way) for way in ways],
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
        measured = [(name, cell, _run(cell, say)) for name, cell in cells(quick)]
    except LabError as error:
        return Summary([{"kind": "in a lab: not measured here", "why": str(error)}], {}, None)
    return summarize(measured)


def _run(cell: Cell, say: Callable[[str], None]) -> Outcomes:
    say(cell.title)
    return run_cell(cell)[0]


def step_seconds(outcomes: Outcomes, arm: Arm) -> float:
    """Returns an arm's median step, of those that nobody disturbed if there are any.

    A step of bulk synchronous training is over when all ranks have taken it.
    """
    quiet: list[float] = []
    disturbed: list[float] = []
    for number in range(len(outcomes[0])):
        parts = [rank[number][arm.name] for rank in outcomes if rank[number][arm.name]]
        steps = [max(times) for times in zip(*(part["times"] for part in parts), strict=True)]
        (quiet if parts[0]["stolen"] <= MOST_STOLEN else disturbed).extend(steps)
    return statistics.median(quiet or disturbed)


@dataclass(frozen=True)
class Summary:
    """What the lab's part comes to.

    Attributes:
        rows: see `rows_of`.
        claims: by ID.
        idle_share: the least share of the CPU that was idle; None if nothing was measured.
    """

    rows: Sequence[dict[str, Any]]
    claims: Mapping[str, Claim]
    idle_share: float | None


NOTHING = Summary((), {}, None)


def summarize(measured: Sequence[tuple[str, Cell, Outcomes]]) -> Summary:
    """Turns what the ranks measured into rows and claims."""
    rows: list[dict[str, Any]] = []
    claims: dict[str, Claim] = {}
    for name, cell, outcomes in measured:
        table = {row["way"]: row for row in rows_of(cell, outcomes)}
        rows += table.values()
        if set(RAW) <= set(table):
            claims[f"bsp.step_time_vs_raw_horovod.{name}"] = Claim(
                table[BSP]["to_best_raw"], "x", _RAW_TARGET, "lower", emulated=True
            )
        if BSP_OVERLAP in table:
            claims[f"bsp.fraction_of_limit.{name}"] = Claim(
                table[BSP_OVERLAP]["of_limit"],
                "",
                _LIMIT_TARGETS.get(name),
                "higher",
                emulated=True,
            )
    idle = min(row["cpu_idle"] for row in rows if row["cpu_idle"] is not None)
    return Summary(rows, claims, idle)


def rows_of(cell: Cell, outcomes: Outcomes) -> list[dict[str, Any]]:
    """Returns a row for each arm of a job, and for each limit."""
    model = cell.network.build(cell.shrink, cell.stretch)
    layers = equations.layer_times(
        model, cell.network.batch, cell.bits_per_second, workers=cell.workers
    )
    limit = equations.limit_seconds(layers)
    seconds = {arm.way: step_seconds(outcomes, arm) for arm in cell.arms}
    best = min(seconds[way] for way in RAW if way in seconds)
    measured = [(way, s, _idle(outcomes, way)) for way, s in seconds.items()]
    limits = [
        ("limit: computing", equations.compute_seconds(layers), None),
        ("limit: communicating", 2 * equations.transfer_seconds(layers), None),
        ("limit: computing and exposed tail", equations.tail_seconds(layers), None),
    ]
    return [
        {
            "kind": f"{cell.title}, cycle {cell.cycle_ms} ms, fusion {cell.fusion_mb} MiB",
            "way": way,
            "step_ms": 1000 * step,
            "to_best_raw": step / best,
            "of_limit": limit / step,
            "cpu_idle": idle,
        }
        for way, step, idle in [*measured, *limits]
    ]


def _idle(outcomes: Outcomes, way: str) -> float:
    name = Arm(way).name
    return statistics.median(
        measured[name]["idle"] for rank in outcomes for measured in rank if measured[name]
    )


def draw(report: Report, figure: Any) -> None:
    """Draws how many times as long as the limit each step is, by case and way."""
    axes = figure.subplots()
    measured = [row for row in report.rows if row.get("of_limit") and row["cpu_idle"] is not None]
    cases = list(dict.fromkeys(row["kind"] for row in measured))
    ways = list(dict.fromkeys(row["way"] for row in measured))
    height = 0.8 / max(1, len(ways))
    for number, way in enumerate(ways):
        rows = [row for row in measured if row["way"] == way]
        places = [cases.index(row["kind"]) + (number + 0.5) * height - 0.4 for row in rows]
        axes.barh(places, [1 / row["of_limit"] for row in rows], height, label=way)
    axes.axvline(1.0, color="black", linewidth=0.8, linestyle="--")
    axes.set_yticks(range(len(cases)), [case.split(", F")[0] for case in cases])
    axes.invert_yaxis()
    axes.set_xlabel("step time / max(computing, communicating), in a lab (emulated)")
    axes.legend(frameon=False, fontsize=8)


def tune(say: Callable[[str], None]) -> Iterator[dict[str, Any]]:
    """Yields rows of what raw Horovod takes by its settings: cycle times, then fusion thresholds.

    Raises:
        JobError: no lab can be made here, or the ranks failed.
    """
    try:
        yield from _tuned(say)
    except LabError as error:
        raise JobError(str(error)) from error


def _tuned(say: Callable[[str], None]) -> Iterator[dict[str, Any]]:
    for name, cell in cells():
        if set(RAW) <= {arm.way for arm in cell.arms}:
            raw = dataclasses.replace(cell, arms=[Arm(way) for way in RAW], rounds=1)
            tried: dict[tuple[int, float], float] = {}
            for cycle in _CYCLES:
                yield from _try(name, raw, cycle, _FUSIONS[0], tried, say)
            best_cycle, _ = min(tried, key=tried.__getitem__)
            for fusion in _FUSIONS[1:]:
                yield from _try(name, raw, best_cycle, fusion, tried, say)


def _try(
    name: str,
    cell: Cell,
    cycle: int,
    fusion: float,
    tried: dict[tuple[int, float], float],
    say: Callable[[str], None],
) -> Iterator[dict[str, Any]]:
    outcomes = _run(dataclasses.replace(cell, cycle_ms=cycle, fusion_mb=fusion), say)
    seconds = {way: step_seconds(outcomes, Arm(way)) for way in RAW}
    tried[cycle, fusion] = min(seconds.values())
    yield {
        "kind": "raw Horovod by its settings",
        "case": name,
        "cycle_ms": cycle,
        "fusion_mib": fusion,
        **{f"{way}, ms": 1000 * step for way, step in seconds.items()},
        "cpu_idle": min(_idle(outcomes, way) for way in RAW),
    }

"""`trepak bench bsp`: what a step of `fit` costs, beside raw Horovod and TensorFlow's strategy."""

from __future__ import annotations

import contextlib
import socket
import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from rich.status import Status

from trepak.scripts.bench import bsp_lab
from trepak.scripts.bench.bsp_lab import RAW
from trepak.scripts.bench.exchanges import RAW_GROUPED
from trepak.scripts.bench.ranks import IN_A_LAB, run_here
from trepak.scripts.entrance import console
from trepak.scripts.launcher import JobError, Line
from trepak.scripts.report import Claims, Options, Report
from trepak.scripts.surroundings import Surroundings

SUMMARY = "step time of fit against raw Horovod and MultiWorkerMirroredStrategy"
TUNES = True

OURS, MIRRORED = "trepak fit", "MultiWorkerMirrored"
LOCAL, ALLREDUCE = "one rank alone", "allreduce alone"
_TOTALS, _DETAILS = "step time", "step time of each round"
_RATIOS = "median step time of each round, and ratios"
_METHODS = (OURS, *RAW, MIRRORED, LOCAL, ALLREDUCE)

_STEP_TARGET, _MIRRORED_TARGET = 1.01, 1.1
_COLOURS = ("#1f5f99", "#d95f02", "#f0a35e", "#5a9e6f", "#888888", "#bbbbbb")  # of the methods
_SHORTEST_STEP = 50.0  # ms; in shorter steps fixed costs say little about real training
_FULL, _QUICK = (20, 12), (2, 6)  # rounds, and steps per method and round
_TIMEOUT = {True: 170.0, False: 1200.0}  # seconds; on a busy machine everything takes longer


def free_ports(count: int) -> list[int]:
    """Returns TCP ports of this machine that nothing listened on a moment ago."""
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return [one.getsockname()[1] for one in sockets]


def measure(options: Options) -> Report:
    """Runs the bench: in a lab, and on the cores that there are.

    Raises:
        JobError: the processes failed, did different work, or took steps too short to compare.
    """
    surroundings = Surroundings()
    with console(stderr=True).status("") as status:
        if options.tune:
            rows = list(bsp_lab.tune(status.update))
            return Report("bsp", {}, rows, surroundings.environment(IN_A_LAB))
        lab = bsp_lab.measure(options.quick, status.update)
        status.update("starting the processes")
        rounds, steps = _QUICK if options.quick else _FULL
        spec = {"ports": free_ports(options.np), "rounds": rounds, "steps": steps}
        outcomes = run_here(
            options.np, "bench_bsp_worker", spec, _TIMEOUT[options.quick], _shown(status)
        )
    launchers = f"{IN_A_LAB}; horovodrun -np {options.np} --mpi"
    report = summarize(outcomes, surroundings.environment(launchers), lab)
    totals = [row for row in report.rows if row["kind"] == _TOTALS]
    shortest = min(row["median_ms"] for row in totals if row["arm"] in RAW)
    if not options.quick and shortest < _SHORTEST_STEP:
        raise JobError(
            f"a step took {shortest:.0f} ms, less than {_SHORTEST_STEP:.0f}: the "
            "machine was busy while the batch was chosen. Run it again on a quieter machine."
        )
    return report


def _shown(status: Status) -> Callable[[Line], None]:
    """Returns what shows what rank 0 is doing; all else is of interest only if the job fails."""

    def show(line: Line) -> None:
        if line.rank == 0 and line.stream == "stdout":
            status.update(line.text)

    return show


def steps_of(outcomes: Sequence[Any]) -> dict[str, list[list[float]]]:
    """Returns each method's step times by round, in seconds: the mean over the ranks."""
    rounds = list(zip(*(outcome["rounds"] for outcome in outcomes), strict=True))
    return {
        method: [
            [
                statistics.fmean(times)
                for times in zip(*(rank[method] for rank in ranks), strict=True)
            ]
            for ranks in rounds
        ]
        for method in _METHODS
    }


def _spread(method: str, times: Sequence[float]) -> dict[str, Any]:
    low, median, high = np.percentile(times, [25, 50, 75]) * 1000
    return {
        "arm": method,
        "median_ms": float(median),
        "q1_ms": float(low),
        "q3_ms": float(high),
        "min_ms": min(times) * 1000,
        "max_ms": max(times) * 1000,
        "steps": len(times),
    }


def summarize(
    outcomes: Sequence[Any],
    environment: dict[str, Any],
    lab: bsp_lab.Summary = bsp_lab.NOTHING,
) -> Report:
    """Turns what every rank measured into rows and claims.

    Args:
        outcomes: what `bench_bsp_worker.measure` returned, by rank.
        environment: see `Surroundings`.
        lab: what the lab's part came to.

    Raises:
        JobError: the methods' weights differ after the same steps: they did not do the same work.
    """
    steps = steps_of(outcomes)
    everything = {method: sum(rounds, []) for method, rounds in steps.items()}
    medians = {method: statistics.median(times) for method, times in everything.items()}
    ratios = _ratios(steps, best=min(RAW, key=medians.__getitem__))
    claims = Claims()
    slower = statistics.median(row["fit_to_raw"] for row in ratios)
    claims.add("bsp.step_time_vs_raw_horovod", slower, _STEP_TARGET, "lower", emulated=False)
    faster = statistics.median(row["mirrored_to_fit"] for row in ratios)
    claims.add("bsp.speedup_vs_multiworker_mirrored", faster, _MIRRORED_TARGET, emulated=False)
    rows = [
        *_circumstances(outcomes),
        *({"kind": _TOTALS} | _spread(method, times) for method, times in everything.items()),
        *(
            {"kind": _DETAILS, "round": number + 1} | _spread(method, steps[method][number])
            for number in range(len(ratios))
            for method in _METHODS
        ),
        *ratios,
        *_limits(medians, outcomes[0]["gradient_bytes"] / 1e6),
        *lab.rows,
    ]
    return Report(
        "bsp", claims | lab.claims, rows, environment, (_DETAILS,), idle_share=lab.idle_share
    )


def _circumstances(outcomes: Sequence[Any]) -> Iterator[dict[str, Any]]:
    """Yields what was done, that all methods did the same, and what ranks take when idle."""
    first = outcomes[0]
    yield {
        "kind": "setting",
        "processes": len(outcomes),
        "batch_per_process": first["batch"],
        "gradient_MB": first["gradient_bytes"] / 1e6,
    }
    for name in first["differences"]:
        difference = max(outcome["differences"][name] for outcome in outcomes)
        if not difference <= 1:
            raise JobError(
                f"{name} and {RAW_GROUPED} came to different weights after the same steps "
                f"({difference:g} times what rounding allows): they did not do the same work."
            )
        row = {"kind": "weights after the same steps, against raw Horovod", "arm": name}
        yield row | {"difference_per_tolerance": difference}
    for state in first["idle"]:
        shares = [outcome["idle"][state] for outcome in outcomes]
        row = {"kind": "share of a core that idle processes take", "state": state}
        yield row | {"least": min(shares), "most": max(shares)}


def _ratios(steps: Mapping[str, Sequence[Sequence[float]]], best: str) -> list[dict[str, Any]]:
    """Returns a row for each round: its medians, and what the claims compare.

    Args:
        steps: see `steps_of`.
        best: the method of raw Horovod that is faster, over all rounds.
    """
    medians = (map(statistics.median, steps[method]) for method in (OURS, best, MIRRORED))
    return [
        {
            "kind": _RATIOS,
            "round": number,
            "best_raw": best,
            "fit_ms": ours * 1000,
            "raw_ms": raw * 1000,
            "mirrored_ms": mirrored * 1000,
            "fit_to_raw": ours / raw,
            "mirrored_to_fit": mirrored / ours,
        }
        for number, (ours, raw, mirrored) in enumerate(zip(*medians, strict=True), start=1)
    ]


def _limits(medians: Mapping[str, float], megabytes: float) -> list[dict[str, Any]]:
    """Returns how far `fit` is from what the machine allows."""
    alone, reduction = medians[LOCAL], medians[ALLREDUCE]
    limits = {
        f"allreduce of {megabytes:.1f} MB: {megabytes / 1000 / reduction:.2f} GB/s": reduction,
        "computation, as if communication were free": alone,
        "computation, then the allreduce": alone + reduction,
    }
    kind = "limits, and fit against them"
    return [
        {"kind": kind, "limit": name, "ms": time * 1000, "fit_to_limit": medians[OURS] / time}
        for name, time in limits.items()
    ]


def draw(report: Report, figure: Any) -> None:
    """Draws step times on these cores, the claims' ratios over the rounds, and the lab's steps."""
    colours = dict(zip(_METHODS, _COLOURS, strict=True))
    figure.set_size_inches(10, 8)
    above, below = figure.subfigures(2, 1)
    bsp_lab.draw(report, below)
    left, right = above.subplots(1, 2, width_ratios=(1.15, 1))
    totals = [row for row in report.rows if row["kind"] == _TOTALS]
    boxes = left.bxp(
        [
            {
                "med": row["median_ms"],
                "q1": row["q1_ms"],
                "q3": row["q3_ms"],
                "whislo": row["min_ms"],
                "whishi": row["max_ms"],
                "label": row["arm"],
            }
            for row in totals
        ],
        orientation="horizontal",
        showfliers=False,
        patch_artist=True,
        widths=0.55,
        medianprops={"color": "black"},
    )
    for box, row in zip(boxes["boxes"], totals, strict=True):
        box.set_facecolor(colours[row["arm"]])
    for height, row in enumerate(totals, 1):
        left.annotate(
            f"{row['median_ms']:.1f}",
            (row["median_ms"], height - 0.3),  # the axis is inverted: this is above
            ha="center",
            va="bottom",
            fontsize=8,
        )
    left.invert_yaxis()
    # A single disturbed step must not squeeze the rest: its whisker leaves the picture.
    left.set_xlim(0, 1.6 * max(row["q3_ms"] for row in totals))
    left.set_xlabel("step time, ms (median, quartiles, extremes)")
    ratios = [row for row in report.rows if row["kind"] == _RATIOS]
    rounds = [row["round"] for row in ratios]
    for key, method, label, target in (
        ("fit_to_raw", RAW_GROUPED, "fit / best of raw Horovod: at most", _STEP_TARGET),
        ("mirrored_to_fit", MIRRORED, "MultiWorkerMirrored / fit: at least", _MIRRORED_TARGET),
    ):
        style = {"color": colours[method]}
        right.plot(rounds, [r[key] for r in ratios], "o-", label=f"{label} {target:g}", **style)
        right.axhline(target, linestyle=":", linewidth=1.2, **style)
    right.xaxis.get_major_locator().set_params(integer=True)
    right.set_xlabel("round")
    right.set_ylabel("ratio of step times")
    right.legend(frameon=False, fontsize=8, loc="best")
    setting = report.rows[0]
    above.suptitle(
        f"{setting['processes']} processes, {setting['batch_per_process']} images each, "
        f"{setting['gradient_MB']:.1f} MB of gradients",
        fontsize=10,
    )
    for axes in (left, right):
        axes.grid(alpha=0.25)
        axes.spines[["top", "right"]].set_visible(False)

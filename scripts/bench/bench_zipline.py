"""`trepak bench zipline`: how long the search for the next barrier takes (ElasticBSP, Table II)."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trepak.scripts.entrance import console
from trepak.scripts.report import Claims, Options, Report
from trepak.scripts.surroundings import Surroundings

SUMMARY = "the time to find the next barrier: ZipLine, the paper's form of it, (Full)GridScan"

SEARCHES = "median time of a search, microseconds"
PAPERS = "the same in the paper (Table II), on another machine"
WAITING = "waiting times of the barriers that are found"

Size = tuple[int, int]  # workers, iterations ahead
Trial = dict[str, Any]  # what each algorithm has found

_ALGORITHMS = {  # and how reports call them
    "zipline": "zipline",
    "paper": "paper_algorithm",
    "grid_scan": "grid_scan",
    "full_grid_scan": "full_grid_scan",
}

_SIZES: tuple[Size, ...] = tuple((n, r) for n in (10, 100, 1000) for r in (15, 150))
_LARGEST = _SIZES[-1]
_TRIALS = 10  # of which the paper takes the mean

# Computation times in microseconds in the paper (Table II), by algorithm and size.
_PAPERS = {
    "zipline": (1.49e2, 1.32e3, 6.37e3, 4.99e4, 2.53e5, 2.38e6),
    "full_grid_scan": (1.54e3, 4.67e4, 8.13e4, 2.15e6, 4.04e6, 2.07e8),
    "grid_scan": (1.68e2, 5.50e3, 1.11e3, 4.38e4, 7.45e3, 2.57e5),
}


def end_times(workers: int, lookahead: int, seed: int) -> NDArray[np.float64]:
    """Returns predicted ends of iterations, in seconds, [workers, lookahead].

    Workers take 1 to 2 s an iteration, each always about the same (within 5%), and are at different
    places of their first one.

    Args:
        workers: n.
        lookahead: R.
        seed: of the draws.
    """
    rng = np.random.default_rng(seed)
    pace = rng.uniform(1, 2, (workers, 1))
    first = pace * rng.uniform(0, 1, (workers, 1))
    return first + np.cumsum(pace * rng.uniform(0.95, 1.05, (workers, lookahead)), axis=1)


def measure(options: Options) -> Report:
    """Runs the bench."""
    surroundings = Surroundings()
    sizes, trials = (_SIZES[:3], 3) if options.quick else (_SIZES, _TRIALS)
    measured = []
    with console(stderr=True).status("") as status:
        for size in sizes:
            status.update(f"{size[0]} workers, {size[1]} iterations ahead")
            measured.append((size, [_trial(*size, seed) for seed in range(trials)]))
    return summarize(measured, surroundings.environment(f"one process, {trials} trials"))


def _trial(workers: int, lookahead: int, seed: int) -> Trial:
    """Searches one instance by all algorithms, one after the other."""
    from trepak.horovod_ext.zipline import search

    ends = end_times(workers, lookahead, seed)
    algorithms = [
        algorithm
        for algorithm in _ALGORITHMS
        if algorithm != "full_grid_scan" or seed == 0 or (workers, lookahead) != _LARGEST  # minutes
    ]
    return {algorithm: search(ends, algorithm) for algorithm in algorithms}


def summarize(measured: Sequence[tuple[Size, Sequence[Trial]]], environment: Any) -> Report:
    """Returns the report.

    Args:
        measured: for each size, what every trial has found.
        environment: see `Surroundings`.
    """
    rows = [_times(size, trials) for size, trials in measured]
    waiting = [_waiting(size, trials) for size, trials in measured]
    claims = Claims()
    for row in rows:
        if (row["workers"], row["lookahead"]) == _LARGEST:
            name, faster = "zipline.speedup_1000x150_vs_paper_algorithm", row["paper_to_zipline"]
            claims.add(name, faster, 5.0, emulated=False)
            ms, papers_ms = row["zipline"] / 1e3, _PAPERS["zipline"][-1] / 1e3
            claims.add("zipline.ms_1000x150", ms, 20.0, "lower", "ms", papers_ms, emulated=False)
    worst = max(row["grid_scan_excess"] for row in waiting)
    name, unit = "zipline.gridscan_excess_wait", "of the least"
    claims.add(name, worst, None, "lower", unit, emulated=False)
    papers = [
        {"kind": PAPERS, "workers": size[0], "lookahead": size[1]}
        | {algorithm: times[_SIZES.index(size)] for algorithm, times in _PAPERS.items()}
        for size, _ in measured
    ]
    return Report("zipline", claims, [*rows, *papers, *waiting], environment)


def _times(size: Size, trials: Sequence[Trial]) -> dict[str, Any]:
    """Returns the median microseconds of each algorithm."""
    row: dict[str, Any] = {"kind": SEARCHES, "workers": size[0], "lookahead": size[1]}
    for algorithm, name in _ALGORITHMS.items():
        seconds = [trial[algorithm].search_seconds for trial in trials if algorithm in trial]
        row[name] = 1e6 * statistics.median(seconds)
    row["full_grid_scan_trials"] = sum("full_grid_scan" in trial for trial in trials)
    row["paper_to_zipline"] = row["paper_algorithm"] / row["zipline"]
    return row


def _waiting(size: Size, trials: Sequence[Trial]) -> dict[str, Any]:
    """Returns by how much more the scans' barriers make workers wait, on average."""
    least = [trial["zipline"].waiting_time for trial in trials]
    if least != [trial["paper"].waiting_time for trial in trials]:
        raise RuntimeError("the paper's form of ZipLine has found other barriers")
    row: dict[str, Any] = {"kind": WAITING, "workers": size[0], "lookahead": size[1]}
    row["least_s"] = statistics.mean(least)
    for algorithm in ("grid_scan", "full_grid_scan"):
        row[f"{algorithm}_excess"] = statistics.mean(
            trial[algorithm].waiting_time / best - 1
            for trial, best in zip(trials, least, strict=True)
            if algorithm in trial
        )
    return row

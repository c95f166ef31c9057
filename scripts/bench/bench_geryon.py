"""`trepak bench geryon`: five ways for gradients to travel, in a lab with emulated accelerators."""

from __future__ import annotations

from typing import Any

from trepak.scripts.bench import exchanges, geryon_alternatives, geryon_order, ranks
from trepak.scripts.bench.exchanges import Job, Method, Network
from trepak.scripts.bench.geryon_figures import draw
from trepak.scripts.bench.geryon_report import summarize
from trepak.scripts.entrance import console
from trepak.scripts.report import Options, Report
from trepak.scripts.surroundings import Surroundings

__all__ = ["SUMMARY", "draw", "measure"]

SUMMARY = "scaling efficiency of Geryon and four other ways, on slow links"

# F (see `Job`): 2 cores carry about 1 Gbit/s in all.
_SHRINK = {10: 80.0, 40: 320.0}
_MOST = 8  # workers
_ROUNDS = {_MOST: 2, 4: 1, 2: 1}
_STEPS = {_MOST: 6, 4: 4, 2: 4}
_SUMS_SHRINK = 4.5  # AlexNet's largest variable has a slice of 1,024 K elements on each server
_SUMS_STRETCH = 18.0
_ALTERNATIVES_TO = exchanges.NETWORKS[1]  # VGG-19
_TIMEOUT = 3600.0


def jobs(quick: bool) -> list[Job]:
    """Returns all jobs of the bench."""
    if quick:
        methods = [Method(name) for name in (exchanges.ALONE, exchanges.SLICING, exchanges.GERYON)]
        return [Job(exchanges.NETWORKS[0], 2, 10, _SHRINK[10], methods, rounds=1, steps=3)]
    of_figures = [
        _job(network, workers, gbit)
        for gbit in _SHRINK
        for network in exchanges.NETWORKS
        for workers in _ROUNDS
    ]
    ring = Job(
        _ALTERNATIVES_TO,
        _MOST,
        10,
        _SHRINK[10],
        [Method(name) for name in (exchanges.ALONE, exchanges.RING, exchanges.GERYON)],
        stretch=_ALTERNATIVES_TO.stretch,
        cycle_ms=5,
        purpose=exchanges.ALTERNATIVES,
    )
    sums = Job(
        exchanges.NETWORKS[0],
        _MOST,
        10,
        _SUMS_SHRINK,
        [
            Method(exchanges.ALONE),
            Method(exchanges.GERYON, round(exchanges.THRESHOLD_K * _SUMS_SHRINK)),
        ],
        rounds=1,
        steps=3,
        stretch=_SUMS_STRETCH,
        purpose=exchanges.SUMS,
    )
    return [ring, sums, *of_figures]  # what differs most from all else first, should it fail


def _job(network: Network, workers: int, gbit: int) -> Job:
    methods = [Method(name) for name in (exchanges.ALONE, *exchanges.FIVE_METHODS)]
    if network.model == "vgg19" and gbit == 10:
        if workers == _MOST:  # Table IV
            methods += [
                Method(name, k)
                for k in exchanges.SLICES_K[1:]
                for name in (exchanges.END_HOST, exchanges.GERYON)
            ]
        if workers == 2:  # Figure 7
            methods += [
                Method(exchanges.PARTITION),
                *(Method(exchanges.SLICING, k) for k in exchanges.SLICES_K[1:]),
            ]
    stretch = max(1.0, network.stretch * workers / _MOST)
    rounds, steps = _ROUNDS[workers], _STEPS[workers]
    return Job(network, workers, gbit, _SHRINK[gbit], methods, rounds, steps, stretch)


def measure(options: Options) -> Report:
    """Runs the bench.

    Raises:
        JobError: the workers failed.
        LabError: no lab can be made here.
    """
    surroundings = Surroundings()
    planned = jobs(options.quick)
    measured, others = [], []
    with console(stderr=True).status(geryon_order.ORDER) as status:
        order = geryon_order.measure(options.quick)
        for number, job in enumerate(planned, start=1):
            status.update(f"job {number} of {len(planned)}: {job.title}")
            outcomes, rows = run_job(job)
            measured.append((job, outcomes))
            others += rows
    return summarize(measured, others, order, surroundings.environment(ranks.IN_A_LAB))


def run_job(job: Job) -> tuple[list[list[dict[str, Any]]], list[dict[str, Any]]]:
    """Runs one job in a lab of its own.

    Returns:
        By rank, a list of rounds: method → what `Worker.measure` returned; rows of alternatives.

    Raises:
        JobError: the workers failed.
        LabError: no lab can be made here.
    """
    with ranks.lab_of(job.workers, job.bits_per_second) as lab:
        compared = job.purpose == exchanges.ALTERNATIVES
        others = geryon_alternatives.measure(lab, job) if compared else []
        outcomes, _ = ranks.run_in(lab, "bench_geryon_worker", job, _TIMEOUT, job.variables)
        return outcomes, others

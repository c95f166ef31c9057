"""`trepak bench alltoall`: Sven's alltoall beside Horovod's and MPI's (thesis, section 6.3.2)."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from typing import Any

from trepak.scripts.bench.alltoall_schedule import bound, delays
from trepak.scripts.bench.ranks import lab_of, run_here, run_in
from trepak.scripts.entrance import console
from trepak.scripts.lab.topology import parse_rate
from trepak.scripts.launcher import sharing
from trepak.scripts.report import Claims, Options, Report
from trepak.scripts.surroundings import Surroundings

SUMMARY = "Sven's alltoall against Horovod's and MPI's, with even splits and with skewed ranks"

EVEN, SKEWED = "even splits, ms for an exchange", "skewed ranks, ms for all exchanges"
_KB, _SMALL = 1 << 10, 64 << 10
_SIZES = tuple(kb * _KB for kb in (1, 4, 16, 64, 256, 1024))
_SMALL_TARGET, _BOUND_TARGET, _MPI_TARGET, _LINK_TARGET = 1.5, 0.95, 0.95, 0.88
_TIMEOUT = 400.0
# Host count, link rate, sizes of splits: the links' rates are what two cores carry, so that links
# bound large splits, and latency small ones.
_PLACES = (
    (4, "500mbit", (*_SIZES, 8 << 20)),
    (8, "250mbit", _SIZES),
    (0, "", (*_SIZES, 8 << 20)),
)


def measure(options: Options) -> Report:
    """Runs the bench: in labs of 4 and 8 hosts, and with 2 ranks on this one.

    Raises:
        JobError: the ranks failed.
        LabError: no lab can be made here.
    """
    surroundings = Surroundings()
    places = ((0, "", _SIZES[:4]),) if options.quick else _PLACES
    measured = []
    with console(stderr=True).status("") as status:
        for hosts, rate, sizes in places:
            status.update(f"{hosts} hosts, links of {rate}" if hosts else "2 ranks on this host")
            measured.append((hosts, rate, *_run(hosts, rate, _spec(sizes, options.quick))))
    return summarize(measured, surroundings.environment("trepak lab run --mpi; horovodrun --mpi"))


def _spec(sizes: Sequence[int], quick: bool) -> dict[str, Any]:
    return {
        "sizes": list(sizes),
        "rounds": 1 if quick else 3,
        "seconds": 0.2 if quick else 1.0,
        "skewed_bytes": 16 * _KB,
        "iterations": 20 if quick else 150,
        "windows": [2, 4],
    }


def _run(hosts: int, rate: str, spec: Mapping[str, Any]) -> tuple[Any, float | None]:
    """Runs even splits, and the skewed schedule in a job of its own, where Horovod rests.

    Its threads negotiate in every cycle, even where nothing is to be exchanged, which takes cores
    from the processes that are measured. Small exchanges of its own need the short cycle.
    """
    even, skewed = {**spec, "windows": []}, {**spec, "sizes": []}
    rests = {"HOROVOD_CYCLE_TIME": "100"}
    if not hosts:
        found = [
            run_here(2, "bench_alltoall_worker", part, _TIMEOUT, env={**sharing(2), **variables})
            for part, variables in ((even, {}), (skewed, rests))
        ]
        return _merged(*found), None
    with lab_of(hosts, parse_rate(rate)) as lab:
        outcomes = [
            run_in(lab, "bench_alltoall_worker", part, _TIMEOUT, variables, gloo=False)
            for part, variables in ((even, {}), (skewed, rests))
        ]
    return _merged(*(ranks for ranks, _ in outcomes)), min(share for _, share in outcomes)


def _merged(even: Sequence[Any], skewed: Sequence[Any]) -> list[Any]:
    return [{**mine, "skewed": theirs["skewed"]} for mine, theirs in zip(even, skewed, strict=True)]


def summarize(
    measured: Sequence[tuple[int, str, Sequence[Any], float | None]], environment: dict[str, Any]
) -> Report:
    """Returns the report of what was measured.

    Args:
        measured: of each place: hosts (0: this one), the links' rate, by rank what it measured, and
            the idle share of the CPU.
        environment: see `Surroundings`.
    """
    rows = [
        row for place in measured for row in (*_even_rows(*place[:3]), *_skewed_rows(*place[:3]))
    ]
    rows.sort(key=lambda row: row["kind"] != EVEN)
    in_lab = [row for row in rows if row["place"] != "this host"]
    small = [row for row in in_lab if row["kind"] == EVEN and row["split_bytes"] <= _SMALL]
    large = [row for row in in_lab if row["kind"] == EVEN and row["split_bytes"] > _SMALL]
    skewed = [row for row in in_lab if row["kind"] == SKEWED]
    claims = Claims()
    if in_lab:
        # The worst of the sizes, hosts and windows: a claim holds for all of them.
        worst = min(row["vs_horovod"] for row in small)
        claims.add("sven.alltoall_vs_horovod_small", worst, _SMALL_TARGET)
        fraction = min(row["fraction_of_bound"] for row in skewed)
        claims.add("sven.alltoall_fraction_of_bound_skewed", fraction, _BOUND_TARGET, unit="")
        beside = min(row["vs_mpi"] for row in skewed)
        claims.add("sven.alltoall_vs_ialltoallv_skewed", beside, _MPI_TARGET)
        share = max(row["link_share"] for row in large)
        claims.add("sven.alltoall_link_share", share, _LINK_TARGET, unit="", paper=0.88)
    idle = [share for *_, share in measured if share is not None]
    return Report("alltoall", claims, rows, environment, idle_share=min(idle, default=None))


def _even_rows(hosts: int, rate: str, ranks: Sequence[Any]) -> list[dict[str, Any]]:
    found = []
    for number, first in enumerate(ranks[0]["even"]):
        of_ranks = [one["even"][number] for one in ranks]
        # An exchange is over when the last rank has its splits.
        medians = {
            arm: statistics.median(
                max(times) for times in zip(*(one["times"][arm] for one in of_ranks), strict=True)
            )
            for arm in first["times"]
        }
        payload = (len(ranks) - 1) * first["split_bytes"]
        link = parse_rate(rate) / 8e3 if hosts else None  # bytes in a ms
        found.append(
            {
                "kind": EVEN,
                "place": f"{hosts} hosts, {rate}" if hosts else "this host",
                "split_bytes": first["split_bytes"],
                **{f"{arm}_ms": time for arm, time in medians.items()},
                "vs_horovod": medians["Horovod"] / medians["trepak"],
                "vs_mpi": medians["MPI"] / medians["trepak"],
                "link_share": payload / medians["trepak"] / link if link else None,
                "counted_share": (
                    max(one["bytes_per_second"]["trepak"] for one in of_ranks) / link / 1e3
                    if link
                    else None
                ),
            }
        )
    return found


def _skewed_rows(hosts: int, rate: str, ranks: Sequence[Any]) -> list[dict[str, Any]]:
    found = []
    for number, first in enumerate(ranks[0]["skewed"]):
        of_ranks = [one["skewed"][number]["times"] for one in ranks]
        times = {arm: max(one[arm] for one in of_ranks) for arm in first["times"]}
        least = bound(delays(len(ranks), ranks[0]["iterations"]), first["window"])
        found.append(
            {
                "kind": SKEWED,
                "place": f"{hosts} hosts, {rate}" if hosts else "this host",
                "window": first["window"],
                "bound_ms": least,
                **{f"{arm}_ms": time for arm, time in times.items()},
                "fraction_of_bound": least / times["trepak"],
                "vs_mpi": times["MPI"] / times["trepak"],
            }
        )
    return found


def draw(report: Report, figure: Any) -> None:
    """Draws the time of an exchange over the size of a split, for each place."""
    rows = [row for row in report.rows if row["kind"] == EVEN]
    places = list(dict.fromkeys(row["place"] for row in rows))
    for axes, place in zip(figure.subplots(1, len(places), squeeze=False)[0], places, strict=True):
        of_place = [row for row in rows if row["place"] == place]
        sizes = [row["split_bytes"] / _KB for row in of_place]
        for arm, colour in (
            ("trepak", "tab:blue"),
            ("Horovod", "tab:orange"),
            ("MPI", "tab:green"),
        ):
            axes.plot(sizes, [row[f"{arm}_ms"] for row in of_place], "o-", label=arm, color=colour)
        axes.set(xscale="log", yscale="log", xlabel="split, KiB", title=place)
    figure.axes[0].set_ylabel("ms for an exchange")
    figure.axes[0].legend()

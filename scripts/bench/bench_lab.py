"""`trepak bench lab`: whether the virtual cluster is what it says it is."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from typing import Any

from trepak.scripts.bench import plots
from trepak.scripts.bench.ranks import lab_of, run_here
from trepak.scripts.entrance import console
from trepak.scripts.idle_watch import MOST_STOLEN, IdleWatch, undisturbed
from trepak.scripts.lab.topology import Lab, format_rate, parse_rate
from trepak.scripts.lab.traffic import Sender
from trepak.scripts.lab.traffic import measure as measure_streams
from trepak.scripts.launcher import sharing
from trepak.scripts.report import Claims, Options, Report
from trepak.scripts.surroundings import Surroundings

SUMMARY = "priorities and rates of a lab's links, and the time of emulated computing"

_RATES = ("50mbit", "200mbit", "1gbit")
_PRIORITY_TARGET, _RATE_TARGET, _COMPUTE_TARGET = 0.90, 0.10, 0.05
_WORKERS = 8
MILLISECONDS = 10.0
_SECONDS, _ROUNDS, _PIECES = {True: 1.0, False: 4.0}, {True: 1, False: 5}, {True: 50, False: 400}
_TIMEOUT = 180.0
_MOST = 4  # times the wanted number of rounds


def measure(options: Options) -> Report:
    """Runs the bench.

    Raises:
        JobError: the workers failed.
        LabError: no lab can be made here.
    """
    surroundings = Surroundings()
    with console(stderr=True).status("sending between the hosts of a lab"):
        streams = [row for rate in _RATES for row in _streams(rate, options.quick)]
    with console(stderr=True).status(f"emulating {_WORKERS} accelerators"):
        pieces, shared = _PIECES[options.quick], sharing(_WORKERS)
        workers = run_here(_WORKERS, "bench_lab_worker", pieces, _TIMEOUT, env=shared)
    environment = surroundings.environment(f"horovodrun -np {_WORKERS} --mpi")
    return summarize(streams, workers, environment)


def _streams(rate: str, quick: bool) -> list[dict[str, Any]]:
    """Returns a row for each round on a lab whose links have that rate.

    A virtual machine's links stand still while its host runs others: such rounds come again, a few
    times, whatever they measured.
    """
    rows: list[dict[str, Any]] = []
    wanted = _ROUNDS[quick]
    with lab_of(3, parse_rate(rate), packet=0) as lab:
        while wanted and len(rows) < _MOST * _ROUNDS[quick]:
            rows.append(_round(lab, len(rows), _SECONDS[quick]))
            wanted -= _stolen(rows[-1]) <= MOST_STOLEN
    return rows


def _stolen(row: Mapping[str, Any]) -> float:
    return float(row["cpu_stolen"])


def _round(lab: Lab, number: int, seconds: float) -> dict[str, Any]:
    """Measures one stream alone, then a marked one beside one that is not."""
    idle = IdleWatch()
    alone = measure_streams(lab, "w0", [Sender("w1", "alone")], seconds)["alone"]
    senders = [Sender("w1", "low"), Sender("w2", "high", lab.classes[0] or 0)]
    both = measure_streams(lab, "w0", senders, seconds)
    return {
        "kind": "streams into one host",
        "link": format_rate(lab.rate),
        "round": number + 1,
        "alone_mbit": alone / 1e6,
        "high_mbit": both["high"] / 1e6,
        "low_mbit": both["low"] / 1e6,
        "high_share": both["high"] / (both["high"] + both["low"]),
        "rate_error": abs(alone - lab.rate) / lab.rate,
        "cpu_idle": idle.share(),
        "cpu_stolen": idle.stolen(),
    }


def summarize(
    streams: Sequence[dict[str, Any]],
    workers: Sequence[dict[str, Any]],
    environment: dict[str, Any],
) -> Report:
    """Returns the report of what was measured.

    Args:
        streams: a row for each round and rate; disturbed ones don't count.
        workers: by rank, the `times` of its pieces in ms, and the `idle` share meanwhile.
        environment: see `Surroundings`.
    """
    errors = [abs(t - MILLISECONDS) / MILLISECONDS for one in workers for t in one["times"]]
    emulated = [
        {
            "kind": f"an accelerator's {MILLISECONDS:g} ms, emulated",
            "worker": rank,
            "pieces": len(one["times"]),
            "median_ms": statistics.median(one["times"]),
            "p95_ms": statistics.quantiles(one["times"], n=20)[-1],
            "max_ms": max(one["times"]),
        }
        for rank, one in enumerate(workers)
    ]
    by_rate: dict[str, list[dict[str, Any]]] = {}
    for row in streams:
        by_rate.setdefault(row["link"], []).append(row)
    counted = [undisturbed(rows, _stolen) for rows in by_rate.values()]
    # The worst of the rates: a claim holds for all of them.
    shares = [statistics.median(r["high_share"] for r in rows) for rows in counted]
    rates = [statistics.median(r["rate_error"] for r in rows) for rows in counted]
    claims, error = Claims(), statistics.median(errors)
    claims.add("lab.priority_share", min(shares), _PRIORITY_TARGET, unit="")
    claims.add("lab.rate_error", max(rates), _RATE_TARGET, "lower", "")
    claims.add("lab.emulated_compute_error", error, _COMPUTE_TARGET, "lower", "")
    idle = [row["cpu_idle"] for rows in counted for row in rows] + [one["idle"] for one in workers]
    return Report("lab", claims, [*streams, *emulated], environment, idle_share=min(idle))


def draw(report: Report, figure: Any) -> None:
    """Draws how two streams share a link, and how long emulated pieces took."""
    left, right = figure.subplots(1, 2)
    rows = [row for row in report.rows if "high_mbit" in row]
    links = list(dict.fromkeys(row["link"] for row in rows))
    bottom = [0.0] * len(links)
    for label, color in (("high", "tab:red"), ("low", "tab:blue")):
        shares = [
            statistics.median(
                row[f"{label}_mbit"] / parse_rate(link) * 1e6
                for row in undisturbed((row for row in rows if row["link"] == link), _stolen)
            )
            for link in links
        ]
        left.bar(links, shares, bottom=bottom, label=f"{label} priority", color=color)
        bottom = shares
    plots.mark(left, 1.0)
    left.set(xlabel="link", ylabel="share of the configured rate", title="Two streams, one port")
    left.legend()
    pieces = [row for row in report.rows if "p95_ms" in row]
    workers = [row["worker"] for row in pieces]
    right.bar(workers, [row["median_ms"] for row in pieces], label="median", color="tab:green")
    right.plot(workers, [row["p95_ms"] for row in pieces], "k_", label="95th percentile")
    plots.mark(right, MILLISECONDS)
    right.set(xlabel="worker", ylabel="ms", title=f"{MILLISECONDS:g} ms of emulated computing")
    right.legend(loc="lower right")

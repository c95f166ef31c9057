"""How much faster an iteration of CoCoA is on the ranks of a lab, and what it could be."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from trepak.scripts.bench.ranks import run_in
from trepak.scripts.lab.topology import Lab
from trepak.scripts.report import Claims

SPEEDUP = "milliseconds of an iteration of CoCoA on one rank and on all"

_TIMEOUT = 240.0


@dataclass(frozen=True)
class Speedup:
    """What is trained.

    Attributes:
        samples: by data set, of all ranks.
        iterations: that count; one before them does not.
        exchanges: that are timed alone.
    """

    samples: Mapping[str, int]
    iterations: int = 10
    exchanges: int = 20


_WANTED = Speedup({"higgs": 800_000, "criteo": 400_000})
_QUICK = Speedup({"higgs": 20_000}, iterations=2, exchanges=3)


def measure(lab: Lab, cores: int, quick: bool) -> list[dict[str, Any]]:
    """Returns a row for each data set; nothing but the links is emulated, so the CPU may be busy.

    Args:
        lab: that is up.
        cores: of this machine, which all ranks share.
        quick: measures little.

    Raises:
        JobError: the ranks failed.
    """
    wanted = _QUICK if quick else _WANTED
    found, _ = run_in(lab, "chicle_speedup_worker", wanted, _TIMEOUT)
    return [row_of(one, lab.hosts, lab.rate, cores) for one in found[0]]


def row_of(one: Mapping[str, Any], ranks: int, rate: float, cores: int) -> dict[str, Any]:
    """Returns what was measured of a data set, and the bound.

    No iteration is shorter than its computing on as many cores as there are and the exchange of
    the weights at the links' rate, of which each rank sends and receives 2(K − 1)/K.

    Args:
        one: of `chicle_speedup_worker.measure`, in seconds.
        ranks: K.
        rate: of links, in bits per second.
        cores: that the ranks share.
    """
    link = 8 * one["bytes"] * 2 * (ranks - 1) / ranks / rate
    bound = one["solve_alone"] / min(ranks, cores) + link
    milliseconds = {
        name: 1000 * one[name] for name in ("alone", "together", "slowest", "gather", "sum")
    }
    return {
        "kind": SPEEDUP,
        "data_set": one["data_set"],
        "samples": one["samples"],
        "ranks": ranks,
        **milliseconds,
        "link": 1000 * link,
        "bound": 1000 * bound,
        "speedup": one["alone"] / one["together"],
        "bound_of_speedup": one["alone"] / bound,
        "of_bound": bound / one["together"],
    }


def claim(rows: Sequence[Mapping[str, Any]], claims: Claims) -> None:
    """Adds what `measure` returned; there is no target."""
    for row in rows:
        name = f"chicle.cocoa_speedup_4_ranks.{row['data_set']}"
        claims.add(name, row["speedup"], None, emulated=False)
        claims.add(f"{name}.of_bound", row["of_bound"], None, unit="", emulated=False)

"""What Chicle costs where nothing changes: local SGD with H = 1 on chunks against BSP."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from trepak.scripts.bench.ranks import lab_of, run_in
from trepak.scripts.lab.topology import parse_rate
from trepak.scripts.report import Claims

RIGID = "milliseconds of a step, nothing changes"
BSP, CHUNKED = "BSP, arrays", "LocalSGD(H=1), ChunkedDataset"

_TARGET = 1.03
_HOSTS = 2
# By rate of the links, the rounds, and the end of the claim's name. The paper's have 56 Gbit/s.
_RATES = {"10gbit": (5, ""), "1gbit": (3, ".1g")}
_TIMEOUT = 180.0


@dataclass(frozen=True)
class Rigid:
    """Two ways to train, by turns.

    Attributes:
        milliseconds: that a step takes, emulated.
        warm: steps of a round that don't count.
        steps: of a round that do.
        rounds: how many, of both ways each.
    """

    milliseconds: float = 100.0
    warm: int = 3
    steps: int = 14
    rounds: int = 5


def measure(quick: bool) -> tuple[list[dict[str, Any]], float]:
    """Returns a row for each round, and the share of the CPU that was idle.

    Raises:
        JobError: the ranks failed.
        LabError: no lab can be made here.
    """
    rows, idle = [], 1.0
    for rate, (rounds, _) in _RATES.items():
        quickly = Rigid(milliseconds=30.0, steps=4, rounds=1)
        wanted = quickly if quick else Rigid(rounds=rounds)
        with lab_of(_HOSTS, parse_rate(rate)) as lab:
            found, idle_then = run_in(lab, "chicle_rigid_worker", wanted, _TIMEOUT)
        idle = min(idle, idle_then)
        rows += _rows(rate, wanted, found)
        if quick:
            break
    return rows, idle


def _rows(rate: str, wanted: Rigid, found: Sequence[Any]) -> list[dict[str, Any]]:
    rows = []
    for number in range(wanted.rounds):
        # The slowest rank's: all wait for it.
        times = {way: max(rank[number][way] for rank in found) for way in (BSP, CHUNKED)}
        rows.append(
            {
                "kind": RIGID,
                "link": rate,
                "round": number,
                "emulated": wanted.milliseconds,
                **{way: 1000 * seconds for way, seconds in times.items()},
                "ratio": times[CHUNKED] / times[BSP],
            }
        )
    return rows


def claim(rows: Sequence[Mapping[str, Any]], claims: Claims) -> None:
    """Adds the claims of what `measure` returned; that of slow links has no target.

    There the step is longer by what the link takes for weights and momentum, which BSP, whose
    gradients are half as many bytes, hides behind the backward pass.
    """
    for rate, (_, ending) in _RATES.items():
        ratios = [row["ratio"] for row in rows if row["link"] == rate]
        if ratios:
            target = None if ending else _TARGET
            name = f"chicle.rigid_overhead{ending}"
            claims.add(name, statistics.median(ratios), target, "lower")

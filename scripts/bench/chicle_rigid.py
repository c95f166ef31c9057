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
_HOSTS, _RATE = 2, "1gbit"
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
    warm: int = 4
    steps: int = 20
    rounds: int = 5


def measure(quick: bool) -> tuple[list[dict[str, Any]], float]:
    """Returns a row for each round, and the share of the CPU that was idle.

    Raises:
        JobError: the ranks failed.
        LabError: no lab can be made here.
    """
    wanted = Rigid(milliseconds=30.0, steps=4, rounds=1) if quick else Rigid()
    with lab_of(_HOSTS, parse_rate(_RATE)) as lab:
        found, idle = run_in(lab, "chicle_rigid_worker", wanted, _TIMEOUT)
    rows = []
    for number in range(wanted.rounds):
        # The slowest rank's: all wait for it.
        times = {way: max(rank[number][way] for rank in found) for way in (BSP, CHUNKED)}
        rows.append(
            {
                "kind": RIGID,
                "round": number,
                **{way: 1000 * seconds for way, seconds in times.items()},
                "emulated": wanted.milliseconds,
                "ratio": times[CHUNKED] / times[BSP],
            }
        )
    return rows, idle


def claim(rows: Sequence[Mapping[str, Any]], claims: Claims) -> None:
    """Adds the claim of what `measure` returned."""
    ratio = statistics.median(row["ratio"] for row in rows)
    claims.add("chicle.rigid_overhead", ratio, _TARGET, "lower")

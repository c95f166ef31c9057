"""Load balancing by real ranks in a lab, of which one is slowed (Chicle, section 5.4, Figure 6).

What a sample takes is emulated, so that ranks that share two cores don't slow each other.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from trepak.scripts.bench import chicle_lanes
from trepak.scripts.bench.ranks import run_in
from trepak.scripts.lab.topology import Lab
from trepak.scripts.report import Claims
from trepak.tf_plugins.chicle.virtual import shortest_schedule

BALANCE = "seconds of an iteration, one of the lab's ranks slowed"
COCOA, LOCAL_SGD = "CoCoA", "local SGD"
PLAIN, BALANCED = "no policy", "Rebalancing"

_TARGET = 1.05
_SLOWNESS = 2.6 / 1.2  # 1.2 GHz among nodes of 2.6 (section 5.4)
_TIMEOUT = 240.0
_IDS = {COCOA: "cocoa", LOCAL_SGD: "local_sgd"}


@dataclass(frozen=True)
class Balancing:
    """A training of the lab's ranks.

    Attributes:
        training: one of the two.
        milliseconds: that a sample takes on an even rank.
        samples: of an iteration, of all ranks.
        plain: iterations without a policy.
        settled: iterations after which `Rebalancing` is to have balanced the load.
        counted: iterations after these, whose mean counts.
        steps: of an iteration.
    """

    training: str
    milliseconds: float
    samples: int
    plain: int
    settled: int
    counted: int
    steps: int = 1


TRAININGS = (
    Balancing(COCOA, 0.04, 48_000, plain=4, settled=10, counted=6),
    Balancing(LOCAL_SGD, 8.0, 512, plain=3, settled=50, counted=6, steps=4),
)
_QUICK = (
    Balancing(COCOA, 0.02, 4_800, plain=2, settled=3, counted=2),
    Balancing(LOCAL_SGD, 1.0, 128, plain=2, settled=3, counted=2, steps=2),
)


def measure(lab: Lab, quick: bool) -> tuple[list[dict[str, Any]], float]:
    """Returns rows by training and policy, and the share of the CPU that was idle.

    Args:
        lab: that is up; its last host is slowed.
        quick: measures little.

    Raises:
        JobError: the ranks failed.
    """
    trainings = _QUICK if quick else TRAININGS
    slow = {lab.host_names[-1]: _SLOWNESS}
    found, idle = run_in(lab, "chicle_balance_worker", trainings, _TIMEOUT, slow=slow)
    slowness = [1.0] * (lab.hosts - 1) + [_SLOWNESS]
    rows = [
        row
        for one, by_policy in zip(trainings, found[0], strict=True)
        for row in _rows(one, by_policy, slowness)
    ]
    return sorted(rows, key=lambda row: str(row["kind"])), idle


def _rows(
    training: Balancing, by_policy: Mapping[str, Sequence[Any]], slowness: Sequence[float]
) -> list[dict[str, Any]]:
    rows = []
    for policy, iterations in by_policy.items():
        lasted = [one["end"] - one["begin"] for one in iterations]
        tasks = [list(one["tasks"].values()) for one in iterations]
        slowest = [max(task["seconds"] for task in some) for some in tasks]
        counted = slice(-training.counted if policy == BALANCED else 1, None)
        chunks = [task["chunks"] for task in tasks[-1]]
        samples = statistics.mean(sum(task["samples"] for task in some) for some in tasks[counted])
        ideal = training.milliseconds / 1000 * samples * longest_share(sum(chunks), slowness)
        mean = statistics.mean(lasted[counted])
        about = {"training": training.training, "policy": policy}
        rows.append(
            {
                "kind": BALANCE,
                **about,
                "first": lasted[0],
                "then": mean,
                "slowest_task": statistics.mean(slowest[counted]),
                "ideal": ideal,
                "vs_ideal": mean / ideal,
                "chunks": ", ".join(map(str, chunks)),
            }
        )
        rows += chicle_lanes.rows_of(iterations, **about)
    return rows


def longest_share(chunks: int, slowness: Sequence[float]) -> float:
    """Returns how long the shortest iteration is that whole chunks allow.

    Args:
        chunks: of all ranks, of as many samples each.
        slowness: by rank.

    Returns:
        As a part of the time that an even rank takes for all chunks.
    """
    counts = shortest_schedule(chunks, slowness)
    return max(count * slow for count, slow in zip(counts, slowness, strict=True)) / chunks


def claim(rows: Sequence[Mapping[str, Any]], claims: Claims) -> None:
    """Adds the claims of what `measure` returned."""
    for row in rows:
        if row["kind"] == BALANCE and row["policy"] == BALANCED:
            name = f"chicle.balanced_iteration_vs_ideal.lab.{_IDS[row['training']]}"
            claims.add(name, row["vs_ideal"], _TARGET, "lower")

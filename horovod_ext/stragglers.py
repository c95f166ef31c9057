"""Who made whom wait, from when each rank's steps computed and synchronized.

All ranks leave a synchronization together, so the one that came last spends the least time in it.
What another rank spends more than that, it waited for the last. No clocks are compared.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Times = npt.NDArray[np.float64]

# A rank is a straggler if the others wait for it this share of the time, and if it is the last one
# in this share of the steps: ranks that are alike are last by turns.
LEAST_SHARE = 0.05
LEAST_LAST = 0.6
LEAST_STEPS = 20  # fewer say nothing


@dataclass(frozen=True)
class RankReport:
    """One rank's part in all steps so far.

    Attributes:
        rank: its number.
        host: where it runs.
        steps: how many steps the report is about.
        compute_seconds: time in which it computed.
        waited_seconds: time in which it waited for others.
        waited_for: the rank for which it waited longest; None if it never waited.
        delayed_seconds: time that each other rank, on average, waited for this one.
        last_share: share of the steps in which it was the last.
    """

    rank: int
    host: str
    steps: int
    compute_seconds: float
    waited_seconds: float
    waited_for: int | None
    delayed_seconds: float
    last_share: float


class StragglerTable:
    """Adds up the steps of all ranks; every rank that adds the same gets the same."""

    def __init__(self, hosts: Sequence[str]) -> None:
        """Makes an empty table; `hosts` are the ranks' hosts, in rank order."""
        self._hosts = list(hosts)
        n = len(self._hosts)
        self.steps = 0
        self.total_seconds = 0.0
        self._compute = np.zeros(n)
        self._waits = np.zeros((n, n))  # who waited, for whom: seconds
        self._last = np.zeros(n)

    def add(self, compute: Times, synchronize: Times) -> None:
        """Adds steps.

        Args:
            compute: [ranks, steps], seconds from the end of the step before to ready gradients.
            synchronize: [ranks, steps], seconds from there to the end of the reduction.

        Raises:
            ValueError: the shapes are not those.
        """
        expected = (len(self._hosts), compute.shape[-1])
        if compute.shape != expected or synchronize.shape != expected:
            raise ValueError(
                f"compute {compute.shape} and synchronize {synchronize.shape} must be [ranks, "
                f"steps] of {len(self._hosts)} ranks."
            )
        steps = compute.shape[1]
        last = synchronize.argmin(axis=0)
        waited = synchronize - synchronize.min(axis=0)
        for rank in range(len(self._hosts)):
            self._waits[:, rank] += waited[:, last == rank].sum(axis=1)
        self._last += np.bincount(last, minlength=len(self._hosts))
        self._compute += compute.sum(axis=1)
        self.steps += steps
        self.total_seconds += float((compute + synchronize).mean(axis=0).sum())

    def reports(self) -> list[RankReport]:
        """Returns a report for each rank, in rank order."""
        others = max(1, len(self._hosts) - 1)
        found = []
        for rank, host in enumerate(self._hosts):
            waits = self._waits[rank]
            found.append(
                RankReport(
                    rank=rank,
                    host=host,
                    steps=self.steps,
                    compute_seconds=float(self._compute[rank]),
                    waited_seconds=float(waits.sum()),
                    waited_for=int(waits.argmax()) if waits.sum() > 0 else None,
                    delayed_seconds=float(self._waits[:, rank].sum() / others),
                    last_share=float(self._last[rank] / max(1, self.steps)),
                )
            )
        return found

    def stragglers(self) -> list[RankReport]:
        """Returns the ranks that made the others wait, the worst first."""
        if self.steps < LEAST_STEPS or len(self._hosts) < 2:
            return []
        found = [
            report
            for report in self.reports()
            if report.delayed_seconds >= LEAST_SHARE * self.total_seconds
            and report.last_share >= LEAST_LAST
        ]
        return sorted(found, key=lambda report: -report.delayed_seconds)

    def verdict(self) -> str:
        """Returns in words who made the others wait."""
        if self.steps < LEAST_STEPS:
            return f"{self.steps} steps are too few to name a straggler."
        named = [
            f"rank {r.rank} on {r.host} made the others wait {r.delayed_seconds:.3g} s of "
            f"{self.total_seconds:.3g} s; it was the last in {r.last_share:.0%} of the steps."
            for r in self.stragglers()
        ]
        return " ".join(named) or "No rank made the others wait."

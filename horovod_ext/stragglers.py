"""Who made whom wait, from when each rank's steps computed and synchronized.

All ranks leave a synchronization together, so the one that came last spends the least time in it.
What another rank spends more than that, it waited for the last. No clocks are compared.

Where ranks go at their own pace nobody waits for one rank; it is counted what each brings to
the rounds.
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
        rounds: that it has seen; 0 if each step ends in a reduction of all ranks.
        contributors: ranks that brought something to a round, on average.
        null_share: share of the rounds to which this rank brought nothing.
        staleness: of what it brought, on average: rounds that others had ended since it was begun.
        dropped: gradients that were too stale for any round.
        exchanged_seconds: time in which it exchanged parameters with servers; rounds are barriers
            then.
        prediction_error: of the rank that plans barriers: how far off the ends of steps were that
            it has foreseen, on average, in steps.
        not_finite: gradients that were left out, as they were not finite.
        taken_out: of the rank that plans barriers: how often one did not answer, and others went
            on without it.
    """

    rank: int
    host: str
    steps: int
    compute_seconds: float
    waited_seconds: float
    waited_for: int | None
    delayed_seconds: float
    last_share: float
    rounds: int = 0
    contributors: float = 0.0
    null_share: float = 0.0
    staleness: float = 0.0
    dropped: int = 0
    exchanged_seconds: float = 0.0
    prediction_error: float = 0.0
    not_finite: int = 0
    taken_out: int = 0


@dataclass(frozen=True)
class RoundsOfRank:
    """What one rank has brought to rounds so far.

    Attributes:
        rounds: that it has seen.
        contributed: of these, to which it brought something.
        contributors: ranks that did, summed up over the rounds.
        staleness: of what it brought, summed up; in rounds.
        dropped: gradients that were too stale.
        waited_seconds: for other ranks; where parameters are on servers.
        exchanged_seconds: in which it exchanged parameters with them.
        prediction_error: see `RankReport`.
        not_finite: gradients that were left out.
        taken_out: see `RankReport`.
    """

    rounds: int
    contributed: int
    contributors: int
    staleness: int
    dropped: int
    waited_seconds: float = 0.0
    exchanged_seconds: float = 0.0
    prediction_error: float = 0.0
    not_finite: int = 0
    taken_out: int = 0

    def since(self, before: RoundsOfRank) -> RoundsOfRank:
        """Returns what has come after an earlier time; the error is that of all predictions."""
        later = {name: value - getattr(before, name) for name, value in vars(self).items()}
        return RoundsOfRank(**{**later, "prediction_error": self.prediction_error})


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
        self._own_steps = np.zeros(n, int)  # of ranks at their own pace
        self._own_waits = np.zeros(n)
        self._rounds: list[RoundsOfRank] = []  # by rank

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

    def add_at_own_pace(
        self,
        steps: Sequence[int],
        compute: Sequence[float],
        waited: Sequence[float],
        rounds: Sequence[RoundsOfRank],
    ) -> None:
        """Adds steps of ranks that go at their own pace.

        Args:
            steps: by rank, how many.
            compute: by rank, seconds in which it computed.
            waited: by rank, seconds in which it waited for rounds.
            rounds: by rank, all its rounds since the table was made, not just those of these steps.
        """
        self._own_steps += np.asarray(steps)
        self._compute += np.asarray(compute)
        self._own_waits += np.asarray(waited)
        self.steps += round(float(np.mean(steps)))
        self.total_seconds += float(np.mean(np.asarray(compute) + np.asarray(waited)))
        self._rounds = list(rounds)

    def reports(self) -> list[RankReport]:
        """Returns a report for each rank, in rank order."""
        others = max(1, len(self._hosts) - 1)
        found = []
        for rank, host in enumerate(self._hosts):
            waits = self._waits[rank]
            mine = self._rounds[rank] if self._rounds else RoundsOfRank(0, 0, 0, 0, 0)
            count = max(1, mine.rounds)
            found.append(
                RankReport(
                    rank=rank,
                    host=host,
                    steps=int(self._own_steps[rank]) or self.steps,
                    compute_seconds=float(self._compute[rank]),
                    waited_seconds=(
                        mine.waited_seconds
                        if mine.exchanged_seconds
                        else float(waits.sum() + self._own_waits[rank])
                    ),
                    waited_for=int(waits.argmax()) if waits.sum() > 0 else None,
                    delayed_seconds=float(self._waits[:, rank].sum() / others),
                    last_share=float(self._last[rank] / max(1, self.steps)),
                    rounds=mine.rounds,
                    contributors=mine.contributors / count,
                    null_share=(mine.rounds - mine.contributed) / count,
                    staleness=mine.staleness / max(1, mine.contributed),
                    dropped=mine.dropped,
                    exchanged_seconds=mine.exchanged_seconds,
                    prediction_error=mine.prediction_error,
                    not_finite=mine.not_finite,
                    taken_out=mine.taken_out,
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
        """Returns in words who made the others wait, or what ranks brought to the rounds."""
        if any(rounds.exchanged_seconds for rounds in self._rounds):
            reports = self.reports()
            longest = max(reports, key=lambda report: report.waited_seconds)
            error = max(report.prediction_error for report in reports)
            foreseen = f" Ends of steps were foreseen to {error:.2g} of a step." if error else ""
            times = sum(report.taken_out for report in reports)
            if times:
                foreseen += " Times that others went on without a rank, as it did not answer: "
                foreseen += f"{times}."
            met = f"The ranks met at {longest.rounds} barriers. " if longest.rounds else ""
            return (
                f"{met}Rank {longest.rank} on "
                f"{longest.host} waited longest for others: {longest.waited_seconds:.3g} s of "
                f"{self.total_seconds:.3g} s.{foreseen}"
            )
        if self._rounds:
            least = max(self.reports(), key=lambda report: report.null_share)
            if least.null_share == 0:
                return "Every rank brought something to every round."
            return (
                f"Rank {least.rank} on {least.host} brought nothing to {least.null_share:.0%} of "
                f"its {least.rounds} rounds, the most of all; on average "
                f"{least.contributors:.3g} ranks brought something."
            )
        if self.steps < LEAST_STEPS:
            return f"{self.steps} steps are too few to name a straggler."
        named = [
            f"rank {r.rank} on {r.host} made the others wait {r.delayed_seconds:.3g} s of "
            f"{self.total_seconds:.3g} s; it was the last in {r.last_share:.0%} of the steps."
            for r in self.stragglers()
        ]
        return " ".join(named) or "No rank made the others wait."

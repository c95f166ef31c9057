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

# Ranks are stragglers if the others wait for them this share of the time, and if they are the last
# ones in this share of the steps: ranks that are alike are last by turns.
LEAST_SHARE = 0.05
LEAST_LAST = 0.6
LEAST_STEPS = 20  # fewer say nothing
_ABOVE_CHANCE = 0.3  # of the steps: by how much stragglers are last more often than ranks alike are
_DEVIATIONS = 2.0  # standard ones, by which each of them is


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
        self._exchanged = 0.0  # seconds of reductions, for which all were there
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
        self._exchanged += float(synchronize.min(axis=0).sum())
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

    def waiting_share(self) -> float:
        """Returns the share of the time in which ranks waited for others, the mean of all."""
        waited = sum(report.waited_seconds for report in self.reports())
        return _share(waited, len(self._hosts) * self.total_seconds)

    def exchanging_share(self) -> float:
        """Returns the share of the time in which no rank waited, and gradients were reduced."""
        return _share(self._exchanged, self.total_seconds)

    def caused_share(self, ranks: Sequence[int]) -> float:
        """Returns the share of all waiting that was for one of these ranks."""
        return _share(float(self._waits[:, list(ranks)].sum()), float(self._waits.sum()))

    def stragglers(self) -> list[RankReport]:
        """Returns the ranks that always made the others wait, the worst first.

        They are at most half of all, each the last more often than chance alone would have it, and
        at least half as often as the one that is it most often. One rank must have been the last in
        `LEAST_LAST` of the steps, several together in `least_last` of them.
        """
        n = len(self._hosts)
        if self.steps < LEAST_STEPS or n < 2:
            return []
        chance = 1 / n + _DEVIATIONS * float(np.sqrt((n - 1) / self.steps)) / n
        often = sorted(self.reports(), key=lambda report: -report.last_share)
        least = max(chance, often[0].last_share / 2)
        often = [report for report in often if report.last_share >= least]
        for count in range(min(len(often), n // 2), 0, -1):
            found = often[:count]
            last = sum(report.last_share for report in found)
            delayed = sum(report.delayed_seconds for report in found)
            if last >= least_last(count, n) and delayed >= LEAST_SHARE * self.total_seconds:
                return sorted(found, key=lambda report: -report.delayed_seconds)
        return []

    def rounds_of(self, rank: int) -> RoundsOfRank | None:
        """Returns what a rank has brought to rounds; None where each step is reduced over all."""
        return self._rounds[rank] if self._rounds else None


def least_last(count: int, n: int) -> float:
    """Returns the share of the steps in which `count` stragglers of n ranks are the last ones."""
    return max(LEAST_LAST, count / n + _ABOVE_CHANCE)


def _share(part: float, whole: float) -> float:
    return min(1.0, part / whole) if whole > 0 else 0.0

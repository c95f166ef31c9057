"""RNA: rounds that start when a few ranks of many are ready (thesis, chapter 5)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from trepak.horovod_ext.rna import RoundOptions
from trepak.tf_plugins.optimizer.distribution import Distribution
from trepak.tf_plugins.sync.rna_grouped_rounds import GroupedRounds
from trepak.tf_plugins.sync.rna_local_rounds import LocalRounds
from trepak.tf_plugins.sync.rna_rounds import Rounds
from trepak.tf_plugins.sync.sync_model import SyncModel


@dataclass(frozen=True)
class RNA(SyncModel):
    """Randomized non-blocking allreduce: nobody's computation waits for anybody.

    A round starts when `quorum` of `choices` ranks, drawn anew for each round, have gradients. Who
    has none contributes nothing, and what it is computing goes into a later round. The average of a
    round is that of its contributors, applied at their share of the learning rate (section 5.1.3).

    Attributes:
        choices: ranks that are asked per round (section 5.1.2), or `quorum` if that is more.
        staleness: a gradient that would go into a round more than this many rounds newer than its
            parameters is dropped.
        quorum: answers that start a round; at most the ranks of the smallest group. With "auto", a
            group that is smaller has all of its ranks answer.
        seed: of the draws.
        groups: ranks that have rounds of their own (section 5.2): lists of them, or "auto", which
            puts together whose steps take alike long. None: all are one group.
        period: rounds from one exchange of the groups' parameters to the next.
        on_miss: what a step does if no round has ended since the one before: "skip" goes on with
            the same parameters; "wait" waits for the next round, so that with a `quorum` of all
            ranks it is bulk synchronous; "local" applies its own gradient (section 5.4), so that
            replicas drift apart until they are averaged at the next `flush`.
    """

    choices: int = RoundOptions.choices
    staleness: int = RoundOptions.staleness
    quorum: int = RoundOptions.quorum
    seed: int = RoundOptions.seed
    groups: Sequence[Sequence[int]] | str | None = None
    period: int = RoundOptions.period
    on_miss: str = "skip"

    def __post_init__(self) -> None:
        """Raises ValueError for options that are wrong."""
        self._options()
        if isinstance(self.groups, str) and self.groups != "auto":
            raise ValueError(f'groups must be "auto", or lists of ranks, got {self.groups!r}.')
        if self.on_miss not in ("skip", "wait", "local"):
            raise ValueError(f'on_miss must be "skip", "wait" or "local", got {self.on_miss!r}.')
        if self.on_miss != "skip" and self.groups is not None:
            raise ValueError(
                f'on_miss="{self.on_miss}" is not for groups: only "skip" goes with them.'
            )

    def _options(self) -> RoundOptions:
        return RoundOptions(
            choices=self.choices,
            quorum=self.quorum,
            seed=self.seed,
            staleness=self.staleness,
            period=self.period,
        )

    def step_for(self, distribution: Distribution) -> Rounds:
        """Returns the rounds of one optimizer; see `SyncModel.step_for`."""
        if self.groups is not None:
            return GroupedRounds(distribution, self._options(), self.groups)
        if self.on_miss == "local":
            return LocalRounds(distribution, self._options())
        return Rounds(distribution, self._options(), waits=self.on_miss == "wait")

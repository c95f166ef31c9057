"""Eager-SGD: RNA's closest kin, as a baseline (Li et al., PPoPP 2020)."""

from __future__ import annotations

from dataclasses import dataclass

from trepak.horovod_ext.rna import RoundOptions
from trepak.tf_plugins.optimizer.distribution import Distribution
from trepak.tf_plugins.sync.rna_rounds import Rounds
from trepak.tf_plugins.sync.sync_model import SyncModel

_EVERYBODY = 2**31 - 1
_NO_BOUND = 2**31 - 1
_CHOICES = {"majority": 1, "solo": _EVERYBODY}


@dataclass(frozen=True)
class EagerSGD(SyncModel):
    """Partial allreduce: who comes late finds the round over, and adds its gradient to the next.

    Each step belongs to the round of its number. Who comes early waits for the round; who comes
    late to it does not, and starts none. The sum of a round is divided by the number of all ranks,
    whoever contributed; gradients that come late are added up.

    Attributes:
        mode: "majority": a round starts when one rank, drawn at random, has come to it, so that on
            average half of the ranks have; "solo": when the first one has.
        seed: of the draws.
    """

    mode: str = "majority"
    seed: int = 0

    def __post_init__(self) -> None:
        """Raises ValueError for a mode that there is not."""
        if self.mode not in _CHOICES:
            raise ValueError(f"mode must be one of {', '.join(_CHOICES)}, got {self.mode!r}.")

    def step_for(self, distribution: Distribution) -> Rounds:
        """Returns the rounds of one optimizer; see `SyncModel.step_for`."""
        options = RoundOptions(
            choices=_CHOICES[self.mode],
            seed=self.seed,
            staleness=_NO_BOUND,
            sums=True,
            aligned=True,
        )
        return Rounds(distribution, options, waits=True, scales_rate=False)

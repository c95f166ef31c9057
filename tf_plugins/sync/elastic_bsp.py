"""ElasticBSP: barriers where they make ranks wait least (Zhao et al., 2020)."""

from __future__ import annotations

from dataclasses import dataclass

from trepak.horovod_ext.elastic_bsp import StepOptions
from trepak.tf_plugins.sync.parameter_server_steps import ServedSyncModel


@dataclass(frozen=True)
class ElasticBSP(ServedSyncModel):
    """Elastic bulk synchronous parallel training: each superstep ends where waiting is least.

    From how long each rank's latest steps took it is predicted when its next ones end, and ZipLine
    chooses how many steps each rank takes until the next barrier (sections III and IV). Until then
    nobody waits for anybody; there all ranks get the same weights.

    Attributes:
        lookahead: steps of each rank that a barrier may be away, at most 10,000 (the paper's R):
            within a superstep no rank takes more than so many steps more than another one that
            takes part. 1 is bulk synchronous.
        prediction: what a step is expected to take: the "mean" of a rank's latest 10, the "last"
            one, or their "exponential" average, in which each new one weighs 0.3.
    """

    lookahead: int = StepOptions.lookahead
    prediction: str = StepOptions.prediction

    def _options(self) -> StepOptions:
        return StepOptions("elastic_bsp", lookahead=self.lookahead, prediction=self.prediction)

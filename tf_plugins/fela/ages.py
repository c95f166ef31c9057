"""Which iterations a rank has begun and applied, where it may be ahead of others (Section VI)."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

from trepak.horovod_ext.fela import Over


@dataclass
class Ages:
    """The iterations of a session that this rank has begun and not applied.

    Attributes:
        ended: those whose tokens are all done and that are not applied, in their order.
        rates: the learning rate with which each of them has begun, in their order: ranks apply an
            iteration in steps of different numbers, and a callback may set a rate for each step.
        most_stale: weights lacked the updates of so many iterations, at most, when one began.
        stale: iterations that began with weights that lacked some.
    """

    ended: list[Over] = field(default_factory=list)
    rates: deque[float | None] = field(default_factory=deque)
    most_stale: int = 0
    stale: int = 0

    def begin(self, rate: float | None) -> None:
        """Notes that one begins, with the weights that this rank has now."""
        lacks = len(self.rates)
        self.most_stale = max(self.most_stale, lacks)
        self.stale += lacks > 0
        self.rates.append(rate)

    def apply(self) -> float | None:
        """Notes that the first of those that have ended is applied; returns its rate."""
        self.ended.pop(0)
        return self.rates.popleft()

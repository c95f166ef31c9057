"""What is to be known of iterations that a rank has begun and not applied (Section VI)."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field


@dataclass
class Ages:
    """The iterations of a session that this rank has begun and not applied.

    Attributes:
        rates: the learning rate with which each of them has begun, in their order: ranks apply an
            iteration in steps of different numbers, and a callback may set a rate for each step.
        most_stale: weights lacked the updates of so many iterations, at most, when one began.
        stale: iterations that began with weights that lacked some.
    """

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
        """Notes that the first one is applied; returns its rate."""
        return self.rates.popleft()

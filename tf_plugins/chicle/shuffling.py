"""Global background shuffling: a few chunks change places between any two iterations.

Chicle, section 4.5, names it. A local solver then meets other samples, whose correlations it can
use, without any pause for a shuffle of all data.
"""

from __future__ import annotations

import numpy as np

from trepak.tf_plugins.chicle.ledger import Move
from trepak.tf_plugins.chicle.policy import Policy, Situation


class Shuffling(Policy):
    """Exchanges chunks between random tasks, one for one."""

    def __init__(self, exchanges: int = 1, seed: int = 0) -> None:
        """Makes it.

        Args:
            exchanges: pairs of chunks that change places between two iterations.
            seed: draws depend on it alone.

        Raises:
            ValueError: there are none.
        """
        if exchanges < 1:
            raise ValueError(f"exchanges must be at least 1, got {exchanges}.")
        self._exchanges = exchanges
        self._rng = np.random.default_rng(seed)

    def decide(self, situation: Situation) -> list[Move]:
        """See `Policy`."""
        ledger = situation.ledger
        tasks = [task for task in situation.staying if ledger.chunks_of(task)]
        moves: list[Move] = []
        for _ in range(self._exchanges if len(tasks) > 1 else 0):
            one, other = (int(task) for task in self._rng.choice(tasks, 2, replace=False))
            chunks = [int(self._rng.choice(ledger.chunks_of(task))) for task in (one, other)]
            for move in (Move(chunks[0], one, other), Move(chunks[1], other, one)):
                ledger.move(move)
                moves.append(move)
        return moves

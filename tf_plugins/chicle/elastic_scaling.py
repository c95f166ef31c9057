"""The elastic scaling policy: chunks for new tasks, and away from those that leave.

Chicle, section 4.5: to a new task chunks come at random from every old one, after the iteration;
those of a task with notice go to the others in turn. The rebalancing policy does the rest.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence

import numpy as np

from trepak.tf_plugins.chicle.ledger import Ledger, Move
from trepak.tf_plugins.chicle.policy import Policy, Situation, TasksJoined


class ElasticScaling(Policy):
    """Moves chunks when tasks come and go."""

    def __init__(self, seed: int | Sequence[int] = 0) -> None:
        """Makes it; draws depend on the seed alone."""
        self._rng = np.random.default_rng(seed)

    def decide(self, situation: Situation) -> list[Move]:
        """See `Policy`."""
        ledger, staying = situation.ledger, situation.staying
        if not staying:
            return []
        joined = {
            task
            for event in situation.events
            if isinstance(event, TasksJoined)
            for task in event.tasks
        }
        moves = list(handed_over(ledger, sorted(situation.leaving), staying))
        for move in moves:
            ledger.move(move)
        new = [task for task in staying if task in joined]
        return moves + list(self._draws(ledger, new, staying))

    def _draws(self, ledger: Ledger, new: Sequence[int], staying: Sequence[int]) -> Iterator[Move]:
        """Yields random chunks of each old task, so that new ones have as many as the others."""
        if not new:
            return
        count = ledger.count(staying)
        share = sum(count.values()) / len(staying)
        wanting = [task for task in new for _ in range(round(share) - count[task])]
        targets = iter(self._rng.permutation(wanting) if wanting else ())
        old = [task for task in staying if task not in new]
        # In turns, so that each old task gives as many as the others with as much.
        drawn = [self._drawn(ledger, task, count[task] - share) for task in old]
        for chunk, task in itertools.chain(*itertools.zip_longest(*drawn, fillvalue=(-1, -1))):
            if chunk >= 0:
                target = next(targets, None)
                if target is None:
                    return
                yield Move(chunk, task, int(target))

    def _drawn(self, ledger: Ledger, task: int, surplus: float) -> list[tuple[int, int]]:
        chunks = self._rng.permutation(ledger.chunks_of(task))
        chunks = chunks[: max(0, min(int(np.ceil(surplus)), len(chunks) - 1))]  # not its last one
        return [(int(chunk), task) for chunk in chunks]


def handed_over(ledger: Ledger, leaving: Sequence[int], staying: Sequence[int]) -> Iterator[Move]:
    """Yields the moves of all chunks of tasks that leave, in turn to those that stay."""
    chunks = [(chunk, task) for task in leaving for chunk in ledger.chunks_of(task)]
    for (chunk, task), target in zip(chunks, itertools.cycle(staying), strict=False):
        yield Move(chunk, task, target)

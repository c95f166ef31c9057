"""The rebalancing policy: slow tasks give chunks to fast ones until all take as long.

Chicle, section 4.5: it learns each task's time per sample, the median of its last iterations, and
moves chunks gradually, until differences are smaller than the time of a single chunk.
"""

from __future__ import annotations

import collections
import statistics
from collections.abc import Sequence

import numpy as np

from trepak.tf_plugins.chicle.ledger import Move
from trepak.tf_plugins.chicle.policy import Policy, Situation


class Rebalancing(Policy):
    """Balances what tasks have to how fast they are."""

    def __init__(self, window: int = 5, gradual: float = 0.5, seed: int = 0) -> None:
        """Makes it.

        Args:
            window: iterations whose median time per sample counts; more of them react later, and
                to noise less.
            gradual: of the moves that are needed, how many are made between two iterations.
            seed: which chunks move depends on it alone.

        Raises:
            ValueError: an option is out of range.
        """
        if window < 1 or not 0 < gradual <= 1:
            raise ValueError(
                f"window must be at least 1 and gradual in (0, 1], got {window} and {gradual}."
            )
        self._window, self._gradual = window, gradual
        self._rng = np.random.default_rng(seed)
        self._seconds: dict[int, collections.deque[float]] = {}  # per sample, by task

    def decide(self, situation: Situation) -> list[Move]:
        """See `Policy`."""
        self._learn(situation)
        tasks = [task for task in situation.staying if task in self._seconds]
        if len(tasks) < 2 or situation.leaving:
            return []
        speed = {task: statistics.median(self._seconds[task]) for task in tasks}
        needed = self._needed(situation, speed)
        return needed[: int(np.ceil(len(needed) * self._gradual))]

    def _learn(self, situation: Situation) -> None:
        metrics = situation.metrics.tasks if situation.metrics else {}
        for task, done in metrics.items():
            if done.samples:
                kept = self._seconds.setdefault(task, collections.deque(maxlen=self._window))
                kept.append(done.seconds / done.samples)
        for task in set(self._seconds) - set(situation.tasks):
            del self._seconds[task]

    def _needed(self, situation: Situation, speed: dict[int, float]) -> list[Move]:
        """Returns the moves after which no other would shorten an iteration."""
        held = {task: self._shuffled(situation.ledger.chunks_of(task)) for task in speed}
        sizes = situation.sizes
        time = {task: speed[task] * sum(sizes[c] for c in held[task]) for task in speed}
        moves: list[Move] = []
        while True:
            slow, fast = max(time, key=time.__getitem__), min(time, key=time.__getitem__)
            if not held[slow]:
                return moves
            chunk = held[slow][-1]
            if time[fast] + speed[fast] * sizes[chunk] >= time[slow]:
                return moves
            held[slow].pop()
            held[fast].insert(0, chunk)
            time[slow] -= speed[slow] * sizes[chunk]
            time[fast] += speed[fast] * sizes[chunk]
            moves.append(Move(chunk, slow, fast))

    def _shuffled(self, chunks: Sequence[int]) -> list[int]:
        return [int(chunk) for chunk in self._rng.permutation(chunks)] if chunks else []

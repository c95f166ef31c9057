"""Draws a task's samples at random, each as often as any other.

How often a sample was drawn is its state, which moves with its chunk: a sample comes once in a pass
over all samples, whichever tasks have its chunk meanwhile.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from trepak.tf_plugins.chicle.chunk import Field
from trepak.tf_plugins.chicle.chunk_store import ChunkStore

DRAWN = Field("drawn", "int64", is_state=True)


class Draws:
    """Draws from the chunks that a task has at a time."""

    def __init__(self, store: ChunkStore, rng: np.random.Generator) -> None:
        """Begins with a store whose chunks have the state `DRAWN`."""
        self._store, self._rng = store, rng

    def draw(self, count: int, fields: Sequence[str]) -> list[np.ndarray]:
        """Returns samples, in random order, in an iteration; those drawn least often come first.

        Args:
            count: how many; more than there are, and some come again.
            fields: which of their fields.

        Returns:
            By field, an array [count, …]; empty where the task has no samples.

        Raises:
            tf.errors.FailedPreconditionError: between iterations.
        """
        chunks = self._store.chunks()
        states = [self._store.state(chunk, DRAWN.name) for chunk in chunks]
        firsts = np.cumsum([0, *(chunk.samples for chunk in chunks)])
        drawn = self._chosen(np.concatenate(states) if states else np.zeros(0, np.int64), count)
        owners = np.searchsorted(firsts, drawn, side="right") - 1
        made: list[list[np.ndarray]] = [[] for _ in fields]
        places = []
        for number in np.unique(owners):
            mine = np.flatnonzero(owners == number)
            rows = drawn[mine] - firsts[number]
            np.add.at(states[number], rows, 1)
            places.append(mine)
            for values, name in zip(made, fields, strict=True):
                values.append(chunks[number].view(name)[rows])
        if not places:
            return [np.zeros(0) for _ in fields]
        order = np.argsort(np.concatenate(places))
        return [np.concatenate(values)[order] for values in made]

    def _chosen(self, drawn: np.ndarray, count: int) -> np.ndarray:
        """Returns which samples are next, by how often each was drawn."""
        chosen: list[np.ndarray] = []
        times = drawn.copy()
        while count > 0 and len(times):
            least = np.flatnonzero(times == times.min())
            some = self._rng.permutation(least)[:count]
            chosen.append(some)
            times[some] += 1
            count -= len(some)
        return np.concatenate(chosen) if chosen else np.zeros(0, np.int64)

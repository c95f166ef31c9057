"""Draws a task's samples at random, each as often as any other.

How often a sample was drawn is its state, which moves with its chunk: a sample comes once in a pass
over all samples, whichever tasks have its chunk meanwhile.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from trepak.tf_plugins.chicle.chunk import Chunk, Field
from trepak.tf_plugins.chicle.chunk_store import ChunkStore

DRAWN = Field("drawn", "int64", is_state=True)


class _Views(NamedTuple):
    """The arrays of a chunk: making one takes as long as drawing a batch from some."""

    drawn: np.ndarray
    fields: list[np.ndarray]


class Draws:
    """Draws from the chunks that a task has at a time, in its iterations."""

    def __init__(self, store: ChunkStore, fields: Sequence[str], rng: np.random.Generator) -> None:
        """Begins with a store whose chunks have the state `DRAWN`.

        Args:
            store: of the task.
            fields: which fields are drawn of each sample.
            rng: decides the order.
        """
        self._store, self._fields, self._rng = store, list(fields), rng
        self._known: dict[int, _Views] = {}  # by chunk's number
        self._chunks: list[_Views] = []  # of this iteration
        self._firsts = np.zeros(1, np.int64)  # by chunk, how many samples are in those before
        self._drawn = np.zeros(0, np.int64)  # by sample, of all chunks

    def begin(self, anew: bool = False) -> None:
        """Takes over the chunks that the task has now, as an iteration begins.

        Args:
            anew: no sample counts as drawn.

        Raises:
            tf.errors.FailedPreconditionError: between iterations.
        """
        chunks = self._store.chunks()
        self._known = {c.number: self._known.get(c.number) or self._views(c) for c in chunks}
        self._chunks = list(self._known.values())
        if anew:
            self._store.check_owner("how often samples were drawn can't be changed")
            for chunk in self._chunks:
                chunk.drawn[:] = 0
        counts = [chunk.drawn for chunk in self._chunks]
        self._firsts = np.cumsum([0, *map(len, counts)])
        self._drawn = np.concatenate(counts) if counts else np.zeros(0, np.int64)

    @property
    def undrawn(self) -> int:
        """How many samples were never drawn."""
        return int(np.count_nonzero(self._drawn == 0))

    def draw(self, count: int) -> list[np.ndarray]:
        """Returns samples, in random order; those drawn least often come first.

        Args:
            count: how many; more than there are, and some come again.

        Returns:
            By field, an array [count, …]; empty where the task has no samples.

        Raises:
            tf.errors.FailedPreconditionError: between iterations.
        """
        self._store.check_owner("no sample can be drawn")
        drawn = self._chosen(count)
        owners = np.searchsorted(self._firsts, drawn, side="right") - 1
        made: list[list[np.ndarray]] = [[] for _ in self._fields]
        places = []
        for number in np.unique(owners):
            chunk = self._chunks[number]
            mine = np.flatnonzero(owners == number)
            rows = drawn[mine] - self._firsts[number]
            np.add.at(chunk.drawn, rows, 1)
            places.append(mine)
            for values, view in zip(made, chunk.fields, strict=True):
                values.append(view[rows])
        if not places:
            return [np.zeros(0) for _ in self._fields]
        order = np.argsort(np.concatenate(places))
        return [np.concatenate(values)[order] for values in made]

    def _chosen(self, count: int) -> np.ndarray:
        """Returns which samples are next, by how often each was drawn; and counts them."""
        chosen: list[np.ndarray] = []
        while count > 0 and len(self._drawn):
            least = np.flatnonzero(self._drawn == self._drawn.min())
            some = self._rng.choice(least, min(count, len(least)), replace=False)
            chosen.append(some)
            self._drawn[some] += 1
            count -= len(some)
        return np.concatenate(chosen) if chosen else np.zeros(0, np.int64)

    def _views(self, chunk: Chunk) -> _Views:
        drawn = self._store.state(chunk, DRAWN.name)
        return _Views(drawn, [chunk.view(name) for name in self._fields])

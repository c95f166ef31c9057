"""Which rows of embeddings lie in fast memory (thesis, section 6.1.3)."""

from __future__ import annotations

import contextlib
import contextvars
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import tensorflow as tf

from trepak.ops.loader import call, load

POLICIES = ("score", "lru", "lfu")


class _Labels(NamedTuple):
    values: Any
    positive: float
    negative: float


_labels: contextvars.ContextVar[_Labels | None] = contextvars.ContextVar("labels", default=None)


@contextlib.contextmanager
def sample_labels(labels: Any, positive: float = 1.0, negative: float = 1.0) -> Iterator[None]:
    """Has look-ups inside count for rows' scores by what their samples are (equation 6.3).

    It goes around a model's call in a training step, on all ranks. `EmbeddingPlacement` with
    `labels=` does so in `fit`. Layers whose rows are not scored by labels pay for the exchange too.

    Args:
        labels: one number for each sample of the batch; above 0.5, the sample is positive.
        positive: what a positive sample weighs, k of the equation.
        negative: what a negative sample weighs, l of the equation.
    """
    values = tf.reshape(tf.cast(labels, tf.float32), [-1])
    token = _labels.set(_Labels(values, positive, negative))
    try:
        yield
    finally:
        _labels.reset(token)


@dataclass(frozen=True)
class Placed:
    """What a placement has come to on one rank; or the sum over ranks.

    Attributes:
        rows: of all tables.
        fast_rows: of these, in fast memory.
        scores: the sum of all rows' scores; after a warm-up, of their accesses.
        fast_scores: the same of rows in fast memory.
        moved_in: rows that came into fast memory.
        moved_out: rows that left it.
    """

    rows: int
    fast_rows: int
    scores: float
    fast_scores: float
    moved_in: int
    moved_out: int


class EmbeddingTiers:
    """The tiers of one layer's rows on this rank."""

    def __init__(self, store: int) -> None:
        """Takes the number of the rows' store."""
        self._store = store

    def track(self, policy: str, decay: float = 0.01, by_importance: bool = False) -> None:
        """Begins to score rows, from zero on.

        Args:
            policy: one of `POLICIES`, or "none".
            decay: beta of equation 6.3.
            by_importance: rows count by `sample_labels`; else once for each rank's batch.
        """
        call(
            "track_embeddings",
            store=self._store,
            policy=policy,
            decay=decay,
            by_importance=by_importance,
        )

    def place(self, seed: int | None = None) -> Placed:
        """Places the rows of all tables: those with the largest scores, or at random by a seed."""
        return Placed(**call("place_embeddings", store=self._store, seed=seed))

    def replace(self) -> Placed:
        """Lets rows with larger scores take the place of others of their table."""
        return Placed(**call("replace_embeddings", store=self._store))

    def score(
        self,
        routing: Any,
        wanted: Any,
        splits: Any,
        exchange: Callable[[Any, Any], Any],
    ) -> None:
        """Sends what this rank's samples say of the rows that it looks up, and counts the others'.

        Does nothing outside of `sample_labels`.

        Args:
            routing: of this rank's look-up.
            wanted: what all ranks want of this one.
            splits: how much of that is whose.
            exchange: brings numbers, split by ranks, to them, and returns theirs.
        """
        labels = _labels.get()
        if labels is None:
            return
        importance, sizes = load().trepak_embedding_importance(
            routing, labels.values, positive=labels.positive, negative=labels.negative
        )
        load().trepak_embedding_score(
            wanted, splits, exchange(importance, sizes), store=self._store
        )

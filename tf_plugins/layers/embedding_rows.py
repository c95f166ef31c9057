"""Rows of embedding tables, whichever rank has them; nothing here is a collective call."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import tensorflow as tf

from trepak.ops.loader import load
from trepak.tf_plugins.layers import embedding_overlap
from trepak.tf_plugins.layers.embedding_plan import Plan, Shard

_BLOCK_BYTES = 4 << 20  # as EmbeddingBlock::kMostBytes
_FLOAT_BYTES = 4


class EmbeddingRows:
    """Reads and writes rows of all ranks, which may be training, waiting, or doing the same.

    Arrays of rows are float32, [rows, 1 + kept, columns]: the weights, behind them what the
    table's optimizer keeps, and, of a table that admits rows, how often a row was seen; or
    [rows, 1, columns], the weights alone. What is read has seen all updates that this rank has
    applied.

    Attributes:
        plan: which rank has what.
        rank: this one.
    """

    def __init__(self, plan: Plan, rank: int, store: int, session: int) -> None:
        """Takes this rank's store, and the session by which the others are asked."""
        self.plan, self.rank = plan, rank
        self._ids = {"store": store, "session": session}

    def blocks(self, shard: Shard) -> Iterator[tuple[int, int]]:
        """Yields first row and number of rows of blocks that are read or written at once."""
        width = shard.columns * (1 + self.plan.tables[shard.table].kept)
        size = max(1, _BLOCK_BYTES // (_FLOAT_BYTES * width))
        for first in range(0, shard.rows, size):
            yield first, min(size, shard.rows - first)

    def read(self, number: int, first: int, count: int, with_slots: bool = False) -> Any:
        """Returns a block of rows of a shard.

        Args:
            number: the shard's.
            first: row within the shard.
            count: rows, not more than `blocks` yields.
            with_slots: with what is behind the weights.

        Raises:
            HorovodInternalError: the shard's rank has died or left, or does not answer.
            tf.errors.FailedPreconditionError: it has no such layer any more.
        """
        with tf.init_scope(), tf.device("CPU:0"):
            rows = load().trepak_embedding_read(
                number, first, count, with_slots=with_slots, **self._ids
            )
        return rows.numpy().reshape(count, -1, self.plan.shards[number].columns)

    def write(self, number: int, first: int, rows: Any) -> None:
        """Sets a block of rows of a shard; returns when its rank has them. See `read`."""
        flat = np.ascontiguousarray(rows, "float32").reshape(len(rows), -1)
        with tf.init_scope(), tf.device("CPU:0"):
            load().trepak_embedding_write(
                number, first, flat, with_slots=rows.shape[1] > 1, **self._ids
            )

    def whole(self, table: int, with_slots: bool = False) -> Any:
        """Returns all rows of a table; see `read`."""
        about = self.plan.tables[table]
        of_whole = self.whole_shard(table)
        values = np.empty(
            (about.rows, 1 + about.kept if with_slots else 1, about.columns), "float32"
        )
        for number, shard in self.shards(table):
            for first, count in self.blocks(shard):
                rows = self.read(number, first, count, with_slots)
                part = embedding_overlap.block(shard, first, count)
                embedding_overlap.copy(values, of_whole, rows, part)
        return values

    def write_table(self, table: int, first_row: int, values: Any, only_mine: bool = False) -> None:
        """Sets rows of a table from first_row on.

        Args:
            table: its number.
            first_row: of the table.
            values: rows of the table.
            only_mine: leave out what other ranks have.
        """
        columns = self.plan.tables[table].columns
        given = Shard(table, 0, first_row, 1, len(values), 0, columns)
        for number, shard in self.shards(table):
            shared = embedding_overlap.overlap(shard, given)
            if shared is None or (only_mine and shard.rank != self.rank):
                continue
            rows = values[shared.other_rows, :, shared.other_columns]  # of the shard in one piece
            for first, count in self.blocks(shard):
                if first < len(rows):
                    block = rows[first : first + count]
                    self.write(number, shared.rows.start + first, block)

    def whole_shard(self, table: int) -> Shard:
        """Returns a table as the shard that has all of it."""
        return embedding_overlap.whole(table, self.plan.tables[table])

    def shards(self, table: int) -> list[tuple[int, Shard]]:
        """Returns the numbers and shards of a table that have rows."""
        return [
            (number, shard)
            for number, shard in enumerate(self.plan.shards)
            if shard.table == table and shard.rows
        ]

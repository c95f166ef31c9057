"""This rank's shards of tables: native memory, and the session by which others read it."""

from __future__ import annotations

import dataclasses
import weakref
from collections.abc import Sequence
from typing import Any

from trepak.horovod_ext import basics, sessions
from trepak.ops.loader import call
from trepak.tf_plugins.layers.embedding_plan import Plan
from trepak.tf_plugins.layers.embedding_rows import EmbeddingRows
from trepak.tf_plugins.layers.embedding_storage import Storage
from trepak.tf_plugins.layers.embedding_tiers import EmbeddingTiers


class EmbeddingStore:
    """The memory, which is given back when nobody has this any more. Making one is collective.

    Attributes:
        number: by which ops find it.
        label: the same on all ranks, and no other store's.
        rows: of all ranks, to be read and written.
        tiers: which of this rank's rows lie in fast memory.
    """

    def __init__(self, plan: Plan, optimizers: Sequence[Any], storage: Storage) -> None:
        """Takes memory for this rank's rows.

        Args:
            plan: which rank has what.
            optimizers: by table, as native code has them.
            storage: what rows lie in.
        """
        self._plan = plan
        self._tables = [
            {
                "name": table.name,
                "vocabulary": table.rows,
                "dim": table.columns,
                "optimizer": optimizer,
                **storage.of_table(table.name),
            }
            for table, optimizer in zip(plan.tables, optimizers, strict=True)
        ]
        self.number: int = call(
            "open_embeddings",
            rank=basics.rank(),
            ranks=plan.ranks,
            tables=self._tables,
            shards=self._shards(),
            **storage.of_store(),
        )["store"]
        self.tiers = EmbeddingTiers(self.number)
        try:
            session = sessions.open_session("embeddings", {"store": self.number})
        except Exception:
            call("close_embeddings", store=self.number, session=-1)
            raise
        finalizer = weakref.finalize(
            self, call, "close_embeddings", store=self.number, session=session
        )
        finalizer.atexit = False  # others may still read, until sessions end
        self.rows = EmbeddingRows(plan, basics.rank(), self.number, session)
        self.label = f"embeddings {session}"

    def described_for_a_rank_more(self) -> dict[str, Any]:
        """Returns what `open_embeddings` takes, for a store of a rank more, which has no rows."""
        ranks = self._plan.ranks
        return {
            "rank": ranks,
            "ranks": ranks + 1,
            "tables": self._tables,
            "shards": self._shards(),
        }

    def _shards(self) -> list[dict[str, int]]:
        return [dataclasses.asdict(shard) for shard in self._plan.shards]

    def min_count(self, table: int) -> int:
        """Returns in how many batches a row of a table must be seen; 0: it admits all."""
        return int(self._tables[table]["min_count"])

    def permits(self, reset: bool = False) -> dict[str, Any]:
        """Returns what look-ups with permits have seen since the last reset.

        look_ups: how many there were; most_stale: updates of batches before its own that one has
        missed at most; versions: of the last ones, how many updates each has seen.

        Args:
            reset: forget it, and have all permits there again.
        """
        found: dict[str, Any] = call("embedding_permits", store=self.number, reset=reset)
        return found

    def statistics(self) -> dict[str, int]:
        """Returns what this rank's share has counted.

        ids: ids of this rank's batches; unique_rows: rows that they were of, once for each batch;
        rows_looked_up, rows_updated: of this rank's, for all ranks; updates: steps that have
        trained; bytes: of rows, touched or not, in memory and in files; fast_bytes: of these in
        fast memory; disk_bytes: that files have taken; fast_rows: rows that were looked up in fast
        memory; moves: of rows into it and out of it; evictions: of these, out of it; rows_admitted:
        now, of tables with a min_count; rows_dropped: for a row_limit.
        """
        counted: dict[str, int] = call("embedding_statistics", store=self.number)
        return counted

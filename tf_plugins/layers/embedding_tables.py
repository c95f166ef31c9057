"""Embedding tables over all ranks: this rank's rows, and the exchanges of a step.

A step's look-up is three things (thesis, section 2.3.1): ids go to the ranks that have their rows
(`ask`, an alltoall), rows come back (`answer`, an alltoall), and each sample combines its own
(`combine`). In the gradient the rows' gradients go to their owners (an alltoall), who `update` the
rows. All tables share each exchange, and each look-up and each update is one op for all of them.
"""

from __future__ import annotations

import dataclasses
import weakref
from collections.abc import Sequence
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from trepak.horovod_ext import basics, exchange, sessions
from trepak.horovod_ext.alltoall import Alltoall, alltoall_async, opened
from trepak.ops.loader import call, load
from trepak.tf_plugins.layers import initial_rows, row_optimizers
from trepak.tf_plugins.layers.embedding_batches import (
    Answered,
    Asked,
    Feature,
    Gradients,
    Returned,
    Wanted,
)
from trepak.tf_plugins.layers.embedding_inputs import FeatureInput
from trepak.tf_plugins.layers.embedding_plan import Plan
from trepak.tf_plugins.layers.embedding_rows import EmbeddingRows
from trepak.tf_plugins.layers.embedding_storage import Storage
from trepak.tf_plugins.layers.embedding_tiers import EmbeddingTiers


class EmbeddingTables:
    """The tables of one layer, of which this rank has its shards. Making one is a collective call.

    Attributes:
        plan: which rank has what.
        features: what is looked up.
        optimizers: by table, a Keras optimizer; set its learning rate to change the table's.
        rows: of all ranks, to be read and written.
        label: the same on all ranks, and no other tables'.
        tiers: which of this rank's rows lie in fast memory.
    """

    def __init__(
        self,
        plan: Plan,
        features: Sequence[Feature],
        optimizers: Sequence[Any],
        storage: Storage | None = None,
    ) -> None:
        """Takes memory for this rank's rows.

        Args:
            plan: which rank has what.
            features: what is looked up.
            optimizers: by table, what `row_optimizer` has returned.
            storage: what rows lie in; None: memory.
        """
        self._storage = Storage() if storage is None else storage
        self.plan, self.optimizers, self.features = plan, list(optimizers), list(features)
        self._described = [
            {
                "name": table.name,
                "vocabulary": table.rows,
                "dim": table.columns,
                "optimizer": row_optimizers.described(optimizer),
                **self._storage.of_table(table.name),
            }
            for table, optimizer in zip(plan.tables, optimizers, strict=True)
        ]
        self._store: int = call(
            "open_embeddings",
            rank=basics.rank(),
            ranks=plan.ranks,
            tables=self._described,
            shards=self._shards(),
            **self._storage.of_store(),
        )["store"]
        self.tiers = EmbeddingTiers(self._store)
        try:
            session = sessions.open_session("embeddings", {"store": self._store})
        except Exception:
            call("close_embeddings", store=self._store, session=-1)
            raise
        finalizer = weakref.finalize(
            self, call, "close_embeddings", store=self._store, session=session
        )
        finalizer.atexit = False  # others may still read, until sessions end
        self.rows = EmbeddingRows(plan, basics.rank(), self._store, session)
        self.label = f"embeddings {session}"

    def initialise(self, initializers: Sequence[Any]) -> None:
        """Gives tables their first values; a collective call.

        Args:
            initializers: by table, a Keras initializer or what names one.
        """
        for number, (table, given) in enumerate(zip(self.plan.tables, initializers, strict=True)):
            initializer = initial_rows.resolved(given)
            if isinstance(initializer, keras.initializers.Zeros):
                continue  # rows are zero, and take neither memory nor disk before they are touched
            for first, values in initial_rows.blocks(
                initializer, table.name, table.rows, table.columns
            ):
                self.rows.write_table(number, first, values[:, None], only_mine=True)
            if self._storage.of_table(table.name)["min_count"]:
                name = f"{table.name}: default row"
                drawn = initial_rows.blocks(initializer, name, table.rows, table.columns)
                self._write_default_row(number, next(drawn)[1][:1])
        exchange.gather(None, "that embedding tables have their first values")  # all may be read

    def ask(self, inputs: Sequence[FeatureInput]) -> Asked:
        """Sends the ids of a batch to the ranks that have their rows; waits for nobody.

        Args:
            inputs: by feature.

        Raises:
            tf.errors.InvalidArgumentError: an id is negative or beyond its table.
        """
        requests, splits, value_splits, routing = self._route(inputs)
        return Asked(routing, value_splits, self._send(requests, splits, "ids").ticket)

    def asked(self, inputs: Sequence[FeatureInput], wanted: Any, splits: Any) -> Wanted:
        """Returns a batch of which a reader has told what all ranks want; nothing travels.

        Args:
            inputs: by feature.
            wanted: int64, what all ranks ask this one for, rank 0's first.
            splits: int64, by rank, how much of that is its.

        Raises:
            tf.errors.InvalidArgumentError: an id is negative or beyond its table.
        """
        _, _, value_splits, routing = self._route(inputs)
        return Wanted(routing, value_splits, wanted, splits)

    def routing(self) -> dict[str, Any]:
        """Returns what another process needs to find out which rows are asked of whom.

        store: what `open_embeddings` takes there, to open a store of a rank more, without rows;
        features: names; tables: of each, the number of its table.
        """
        ranks = self.plan.ranks
        return {
            "store": {
                "rank": ranks,
                "ranks": ranks + 1,
                "tables": self._described,
                "shards": self._shards(),
            },
            "features": tuple(feature.path for feature in self.features),
            "tables": tuple(feature.table for feature in self.features),
        }

    def _shards(self) -> list[dict[str, int]]:
        return [dataclasses.asdict(shard) for shard in self.plan.shards]

    def _route(self, inputs: Sequence[FeatureInput]) -> Any:
        return load().trepak_embedding_route(
            [one.ids for one in inputs],
            [one.splits for one in inputs],
            features=[feature.path for feature in self.features],
            tables=[feature.table for feature in self.features],
            store=self._store,
        )

    def ask_nothing(self) -> Asked:
        """Takes part in the others' `ask`, without ids: they wait for all ranks'."""
        none = tf.zeros([0], tf.int64)
        splits = tf.zeros([self.plan.ranks], tf.int64)
        return Asked(none, splits, self._send(none, splits, "ids").ticket)

    def answer(self, asked: Asked | Wanted, permits: int = 0) -> Answered:
        """Looks up what all ranks have asked this one for, and sends it; waits for the ids only.

        Args:
            asked: what `ask` or `asked` has returned.
            permits: look-ups that may be ahead of their updates, this one included; 0: any number.
        """
        if isinstance(asked, Wanted):
            wanted, splits = asked.wanted, asked.splits
        else:
            wanted, splits = self._receive(asked.ids, tf.int64, "ids")
        rows, row_splits = load().trepak_embedding_lookup(
            wanted, splits, store=self._store, permits=permits
        )
        sent = self._send(rows, row_splits, "rows").ticket
        return Answered(asked.routing, asked.value_splits, wanted, splits, sent)

    def combine(
        self, answered: Answered, inputs: Sequence[FeatureInput], anchor: Any, end: Any
    ) -> list[Any]:
        """Returns the combined rows of each feature: float32, [samples, columns].

        Args:
            answered: what `answer` has returned.
            inputs: by feature, as `ask` got them.
            anchor: a tensor that the tape watches; without one TensorFlow would ask for no
                gradient, and the tables would not be trained.
            end: called in the gradient with what `send_back` takes.
        """
        weights = [
            tf.zeros([0]) if one.weights is None else tf.stop_gradient(one.weights)
            for one in inputs
        ]
        reductions = {
            "combiners": [feature.combiner for feature in self.features],
            "reduces": [one.reduces for one in inputs],
        }
        self.tiers.score(answered.routing, answered.wanted, answered.splits, self._exchange)
        values, _ = self._receive(answered.rows, tf.float32, "rows")
        routing, splits = answered.routing, answered.value_splits

        @tf.custom_gradient
        def combined(anchor: Any) -> Any:
            outputs = load().trepak_embedding_combine(
                routing,
                values,
                weights,
                dims=[feature.columns for feature in self.features],
                **reductions,
            )

            def gradient(*grads: Any) -> Any:
                spread = load().trepak_embedding_spread(routing, grads, weights, **reductions)
                end(Gradients(answered.wanted, answered.splits, spread, splits))
                return tf.zeros_like(anchor)

            return outputs, gradient

        found: list[Any] = combined(anchor)
        return found

    def send_back(self, gradients: Gradients) -> Returned:
        """Sends a batch's gradients to the ranks that have the rows; waits for nobody.

        Args:
            gradients: what `combine` has passed to `end`.
        """
        sent = self._send(gradients.values, gradients.value_splits, "gradients").ticket
        return Returned(gradients.wanted, gradients.splits, sent)

    def update(self, returned: Returned, permits: int = 0) -> None:
        """Waits for the gradients of all ranks, and updates the rows that they are of.

        A row's gradient is the sum over the ranks' batches, divided by the number of ranks, as the
        mean over all ranks' losses wants it.

        Args:
            returned: what `send_back` has returned.
            permits: as `answer` got it.

        Raises:
            tf.errors.InvalidArgumentError: a gradient is not finite.
        """
        gradients, _ = self._receive(returned.gradients, tf.float32, "gradients")
        row_optimizers.count_update(self.optimizers)
        load().trepak_embedding_update(
            returned.wanted,
            returned.splits,
            gradients,
            row_optimizers.rates(self.optimizers),
            tf.cast(self.optimizers[0].iterations.value, tf.int64),
            tf.constant(1 / self.plan.ranks, tf.float32),
            store=self._store,
            permits=permits,
        )

    def permits(self, reset: bool = False) -> dict[str, Any]:
        """Returns what look-ups with permits have seen since the last reset.

        look_ups: how many there were; most_stale: updates of batches before its own that one has
        missed at most; versions: of the last ones, how many updates each has seen.

        Args:
            reset: forget it, and have all permits there again.
        """
        found: dict[str, Any] = call("embedding_permits", store=self._store, reset=reset)
        return found

    def _exchange(self, values: Any, splits: Any) -> Any:
        """Sends numbers to the ranks that have the rows, and returns theirs."""
        ticket = self._send(values, splits, "importance").ticket
        return self._receive(ticket, tf.float32, "importance")[0]

    def _send(self, values: Any, splits: Any, what: str) -> Alltoall:
        return alltoall_async(values, splits, name=f"{self.label}: {what}")

    def _receive(self, ticket: Any, dtype: tf.DType, what: str) -> tuple[Any, Any]:
        label = f"{self.label}: {what}"
        return Alltoall(ticket, dtype, tf.TensorShape([]), opened(), label).wait()

    def write(self, table: int, first_row: int, values: Any) -> None:
        """Sets weights of a table, on whichever ranks they are; no collective call.

        Args:
            table: its number.
            first_row: of the table.
            values: float32, [rows, columns], of the table's rows from there on.
        """
        self.rows.write_table(table, first_row, np.asarray(values)[:, None])

    def _write_default_row(self, table: int, values: Any) -> None:
        """Sets what stands for rows that are not admitted: the row behind a shard's last one."""
        for number, shard in self.rows.shards(table):
            if shard.rank == self.rows.rank:
                columns = slice(shard.first_column, shard.first_column + shard.columns)
                self.rows.write(number, shard.rows, values[:, None, columns])

    def check_that_files_hold_all(self) -> None:
        """Checks that files can have all that these tables are.

        Raises:
            NotImplementedError: a table admits rows by `min_count`: which ones it has admitted, and
                what stands for the others, files do not have, and without it no row is found.
        """
        for table in self.plan.tables:
            if self._storage.of_table(table.name)["min_count"]:
                raise NotImplementedError(
                    f"the table {table.name!r} admits rows by min_count, and files can't have "
                    "which ones it has admitted: train without min_count, or keep what "
                    "get_embedding_tables() returns yourself."
                )

    def whole(self, table: int) -> Any:
        """Returns a whole table's weights, float32, [rows, columns]; no collective call."""
        return tf.constant(self.rows.whole(table)[:, 0])

    def statistics(self) -> dict[str, int]:
        """Returns what this rank's share has counted.

        ids: ids of this rank's batches; unique_rows: rows that they were of, once for each batch;
        rows_looked_up, rows_updated: of this rank's, for all ranks; updates: steps that have
        trained; bytes: of rows, touched or not, in memory and in files; fast_bytes: of these in
        memory; disk_bytes: that files have taken; fast_rows: rows that were looked up in memory;
        moves: of rows between memory and files; evictions: of these, out of memory; rows_admitted:
        now, of tables with a min_count; rows_dropped: for a row_limit.
        """
        counted: dict[str, int] = call("embedding_statistics", store=self._store)
        return counted

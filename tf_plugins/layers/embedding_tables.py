"""Embedding tables over all ranks: the exchanges of a step.

A step's look-up is three things (thesis, section 2.3.1): ids go to the ranks that have their rows
(`ask`, an alltoall), rows come back (`answer`, an alltoall), and each sample combines its own
(`combine`). In the gradient the rows' gradients go to their owners (an alltoall), who `update` the
rows. All tables share each exchange, and each look-up and each update is one op for all of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from trepak.horovod_ext import exchange
from trepak.horovod_ext.alltoall import Alltoall, alltoall_async, opened
from trepak.ops.loader import load
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
from trepak.tf_plugins.layers.embedding_storage import Storage
from trepak.tf_plugins.layers.embedding_store import EmbeddingStore


class EmbeddingTables:
    """The tables of one layer, of which this rank has its shards. Making one is a collective call.

    Attributes:
        plan: which rank has what.
        features: what is looked up.
        optimizers: by table, a Keras optimizer; set its learning rate to change the table's.
        store: this rank's rows; `rows`, `tiers` and `label` are its.
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
        self.plan, self.optimizers, self.features = plan, list(optimizers), list(features)
        self.store = EmbeddingStore(
            plan, [row_optimizers.described(one) for one in optimizers], storage or Storage()
        )
        self.rows, self.tiers, self.label = self.store.rows, self.store.tiers, self.store.label

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
            if table.admits:
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
        return {
            "store": self.store.described_for_a_rank_more(),
            "features": tuple(feature.path for feature in self.features),
            "tables": tuple(feature.table for feature in self.features),
        }

    def _route(self, inputs: Sequence[FeatureInput]) -> Any:
        return load().trepak_embedding_route(
            [one.ids for one in inputs],
            [one.splits for one in inputs],
            features=[feature.path for feature in self.features],
            tables=[feature.table for feature in self.features],
            store=self.store.number,
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
            wanted, splits, store=self.store.number, permits=permits
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
            store=self.store.number,
            permits=permits,
        )

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

    def whole(self, table: int) -> Any:
        """Returns a whole table's weights, float32, [rows, columns]; no collective call."""
        return tf.constant(self.rows.whole(table)[:, 0])

    def permits(self, reset: bool = False) -> dict[str, Any]:
        """Returns how stale look-ups were; see `EmbeddingStore.permits`."""
        return self.store.permits(reset)

    def statistics(self) -> dict[str, int]:
        """Returns what this rank's share has counted; see `EmbeddingStore.statistics`."""
        return self.store.statistics()

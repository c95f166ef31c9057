"""KerasRS's DistributedEmbedding with tables over trepak's ranks instead of over TPUs."""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping
from typing import Any

import keras
import keras_rs
import numpy as np
import tensorflow as tf

from trepak.horovod_ext import basics
from trepak.tf_plugins.layers import keras_tables, row_optimizers
from trepak.tf_plugins.layers.embedding_batches import Feature
from trepak.tf_plugins.layers.embedding_inputs import feature_input
from trepak.tf_plugins.layers.embedding_plan import Table, make_plan
from trepak.tf_plugins.layers.embedding_schedule import Exact, Schedule
from trepak.tf_plugins.layers.embedding_storage import storage
from trepak.tf_plugins.layers.embedding_tables import EmbeddingTables

_COMBINERS = ("mean", "sum", "sqrtn")


@keras.saving.register_keras_serializable("trepak")
class DistributedEmbedding(keras_rs.layers.DistributedEmbedding):
    """Looks up and combines embeddings whose tables lie on all ranks, each row on one of them.

    Takes the place of `keras_rs.layers.DistributedEmbedding`, with the same `TableConfig` and
    `FeatureConfig` objects, inputs, weights and outputs. Each rank gives it its own batch. Tables
    are trained by their own `TableConfig.optimizer`, as KerasRS does on TPUs, in the backward pass
    of whatever loss the outputs are part of; the optimizer that the model is compiled with trains
    the rest. A row's gradient is the mean over all ranks of their losses' gradients, like that of
    other variables under `DistributedOptimizer`. Adam is lazy: it changes the rows that a step
    looks up. Tables with `placement="default_device"` stay KerasRS's: whole on each rank, trained
    by the model's optimizer.

    All ranks call the layer equally often, so it goes with `sync=BSP()`. Building it is a
    collective call, and so is loading a model that has it. The rest of saving and loading is not:
    one rank alone reads and writes the tables of all.
    """

    has_rows_on_ranks = True  # what optimizers must know

    def __init__(
        self,
        feature_configs: Any,
        *,
        sharding: str | Mapping[str, str] = "auto",
        tables_in_files: bool = True,
        fast_bytes: int = 0,
        folder: str | os.PathLike[str] | None = None,
        device: str | None = None,
        hashed: bool | Collection[str] = False,
        min_count: int | Mapping[str, int] = 0,
        row_limit: int | Mapping[str, int] = 0,
        **kwargs: Any,
    ) -> None:
        """Makes the layer; `hvd.init()` must have been called before it is built.

        Args:
            feature_configs: a nested structure of `keras_rs.layers.FeatureConfig`.
            sharding: how tables are cut, for all or by table name: "row", "column", "table" or
                "auto"; see docs/sven.md.
            tables_in_files: whether Keras' files (`save`, `save_weights`) have the tables and what
                their optimizers keep; without, `trepak.layers.save_tables` saves them.
            fast_bytes: with a folder or a device, how much fast memory a rank has for its rows, of
                all tables together. `trepak.callbacks.EmbeddingPlacement` says which rows lie in
                it; until then the first ones of each table do. Four bytes of host memory for each
                row come on top.
            folder: where a rank's other rows lie, in files that never have a name and are gone when
                the process ends; ranks may share it. None: they lie in memory. Disk is taken as
                rows are touched; an initializer that is not zeros touches all of them.
            device: TensorFlow's name of the accelerator, like "GPU:0", whose memory `fast_bytes`
                are of; None: they are of the host's.
            hashed: the tables whose ids are any whole numbers, or whether all tables' are: the id i
                is row splitmix64(i) % vocabulary_size, so that ids may share a row. Other tables
                refuse ids that are not below their vocabulary_size.
            min_count: for all tables or by name, in how many batches of ranks a row must have been
                trained before it is admitted, which means: trained for itself. Before that a
                default row is looked up and trained in its place, one for each rank's part of the
                table. 0: all rows are admitted. Two bytes for each row come on top. With look-ups
                ahead of updates the first gradients of a row may still be those of the default row.
            row_limit: for all tables or by name, how many rows may be admitted at once; each rank
                has the part of it that it has of the rows. When there are more, those with the
                lowest scores (`EmbeddingPlacement`) are dropped, down to 7/8 of the limit: they are
                what the default row is then, and must be seen `min_count` times again. 0: no limit.
            **kwargs: those of `keras_rs.layers.DistributedEmbedding`.

        Raises:
            ValueError: tables have the same name, or an optimizer or combiner that rows can't have;
                or other arguments are out of bounds, or for tables that there are not.
        """
        self.storage = storage(fast_bytes, folder, device, hashed, min_count, row_limit)
        self._sharding = dict(sharding) if isinstance(sharding, Mapping) else sharding
        self._tables_in_files = tables_in_files
        self._configs: dict[str, Any] = {}
        self.tables: EmbeddingTables | None = None
        self.schedule: Schedule = Exact()
        super().__init__(feature_configs, **kwargs)

    def _has_sparsecore(self) -> bool:
        return True  # what KerasRS places on sparse cores, trepak places on ranks

    @tf.__internal__.tracking.no_automatic_dependency_tracking
    def _sparsecore_init(self, feature_configs: dict[str, Any], table_stacking: Any) -> None:
        self._table_stacking = table_stacking  # all tables are stacked anyhow
        self._configs = feature_configs
        named: dict[str, Any] = {}
        for config in feature_configs.values():
            table = config.table
            if named.setdefault(table.name, table) is not table:
                raise ValueError(
                    f"two tables have the name {table.name!r}: give each TableConfig its own, and "
                    "features that share a table the same object."
                )
            if table.combiner not in _COMBINERS:
                raise ValueError(
                    f"the combiner of the table {table.name!r} must be one of "
                    f"{', '.join(_COMBINERS)}, got {table.combiner!r}."
                )
        self.storage.check(named)
        self._table_configs = list(named.values())
        self._optimizers = [
            row_optimizers.row_optimizer(table.name, table.optimizer)
            for table in self._table_configs
        ]

    @tf.__internal__.tracking.no_automatic_dependency_tracking
    def _sparsecore_build(self, input_shapes: dict[str, Any]) -> None:
        # No row is a Keras variable. Without one that is trained TensorFlow would not ask for the
        # gradient in which rows are.
        self._anchor = self.add_weight(name="anchor", shape=(1,), initializer="zeros")
        # What optimizers count must be the same on all ranks, so it is broadcast with the model.
        for optimizer in self._optimizers:
            for variable in optimizer.variables:
                self._track_variable(variable)
        numbers = {table.name: number for number, table in enumerate(self._table_configs)}
        look_ups = dict.fromkeys(numbers, 0)
        features = []
        for path, config in self._configs.items():
            table = config.table
            sizes = zip(input_shapes[path], config.input_shape, strict=True)
            look_ups[table.name] += int(np.prod([given or told or 1 for given, told in sizes]))
            features.append(Feature(path, numbers[table.name], table.embedding_dim, table.combiner))
        tables = [
            Table(
                table.name,
                table.vocabulary_size,
                table.embedding_dim,
                row_optimizers.slots_of(optimizer),
                look_ups[table.name],
                self.storage.of_table(table.name)["min_count"] > 0,
            )
            for table, optimizer in zip(self._table_configs, self._optimizers, strict=True)
        ]
        with tf.init_scope():
            plan = make_plan(tables, basics.size(), self._sharding)
            self.tables = EmbeddingTables(plan, features, self._optimizers, self.storage)
            self.tables.initialise([table.initializer for table in self._table_configs])

    def _sparsecore_call(
        self, inputs: dict[str, Any], weights: dict[str, Any] | None = None, training: bool = False
    ) -> dict[str, Any]:
        del training  # the tape says whether rows are trained
        given = [
            feature_input(path, inputs[path], None if weights is None else weights[path])
            for path in self._configs
        ]
        assert self.tables is not None
        anchor = self._anchor.value
        if not self.trainable:
            anchor = tf.stop_gradient(anchor)
        combined = self.schedule.look_up(self.tables, given, anchor)
        outputs = {}
        for (path, config), one, values in zip(self._configs.items(), given, combined, strict=True):
            columns = config.table.embedding_dim
            shaped = tf.reshape(values, tf.concat([one.shape, [columns]], 0))
            shaped.set_shape([*one.static_shape, columns])
            outputs[path] = tf.cast(shaped, self.compute_dtype)
        return outputs

    def _sparsecore_get_embedding_tables(self) -> dict[str, Any]:
        """Returns whole tables, by name; no collective call."""
        assert self.tables is not None
        tables = self.tables.plan.tables
        return {table.name: self.tables.whole(number) for number, table in enumerate(tables)}

    def set_embedding_tables(self, tables: Mapping[str, Any]) -> None:
        """Sets tables of all ranks, by name; no collective call: one rank does it for all.

        Args:
            tables: those to be set; whole, [rows, columns].

        Raises:
            ValueError: there is no such table, or it has another shape.
        """
        assert self.tables is not None
        known = {table.name: number for number, table in enumerate(self.tables.plan.tables)}
        for name, values in tables.items():
            if name not in known:
                raise ValueError(f"there is no table {name!r}; there are {', '.join(known)}.")
            table = self.tables.plan.tables[known[name]]
            if tuple(np.shape(values)) != (table.rows, table.columns):
                raise ValueError(
                    f"the table {name!r} has the shape {(table.rows, table.columns)}, the values "
                    f"{tuple(np.shape(values))}."
                )
        for name, values in tables.items():
            self.tables.write(known[name], 0, values)

    def save_own_variables(self, store: Any) -> None:
        """Saves tables and what their optimizers keep, of all ranks; no collective call.

        Raises:
            MemoryError: this rank has not enough memory for them.
        """
        super().save_own_variables(store)
        if self._tables_in_files and self.tables is not None:
            keras_tables.save(self.name, self.tables, store)

    def load_own_variables(self, store: Any) -> None:
        """Loads what any number of ranks have saved, for all ranks; no collective call.

        Raises:
            ValueError: the file has no such tables.
        """
        keys = list(store.keys())
        if self.tables is not None and (
            self._tables_in_files or any(map(keras_tables.is_key, keys))
        ):
            keras_tables.load(self.name, self.tables, store)
        super().load_own_variables({k: store[k] for k in keys if not keras_tables.is_key(k)})

    def get_config(self) -> dict[str, Any]:
        """Returns what `from_config` makes the layer from."""
        return {
            **super().get_config(),
            "sharding": self._sharding,
            "tables_in_files": self._tables_in_files,
            **self.storage.config(),
        }

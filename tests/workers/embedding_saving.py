"""Embedding tables read, written, saved and loaded by any rank, over ranks and shardings."""

from __future__ import annotations

import gc
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from embeddings import WholeTables, as_inputs, built, drawn, loss_of
from harness import case

import trepak.keras as hvd
from trepak.horovod_ext import exchange
from trepak.ops.loader import call

SHARDINGS = ({"sgd": "table", "adagrad": "row", "adam": "column"}, "column", "row")


def step(layer: Any, number: int) -> None:
    """Trains on this rank's batch of that number."""
    ids, _ = as_inputs(drawn(hvd.rank(), number))
    with tf.GradientTape() as tape:
        loss = loss_of(layer(ids))
    tape.gradient(loss, layer.trainable_variables)


def tables_of(layer: Any) -> dict[str, Any]:
    return {name: table.numpy() for name, table in layer.get_embedding_tables().items()}


def slots_of(layer: Any) -> list[Any]:
    rows = layer.tables.rows
    return [rows.whole(number, with_slots=True) for number in range(len(layer.tables.plan.tables))]


def check_equal(found: Any, expected: Any) -> None:
    for name, values in found.items():
        np.testing.assert_array_equal(values, expected[name], err_msg=name)


@case
def rank_0_reads_all_of_a_step_while_the_others_go_on() -> None:
    layer = built("row")
    whole = WholeTables(tables_of(layer))
    for number in range(5):
        step(layer, number)
        whole.step([drawn(rank, number) for rank in range(hvd.size())], is_weighted=False)
        if hvd.rank() == 0:
            for name, values in tables_of(layer).items():
                np.testing.assert_allclose(values, whole.tables[name], rtol=1e-5, atol=1e-6)
    exchange.gather(None, "that rank 0 has read")


@case
def what_one_rank_writes_all_ranks_read() -> None:
    for sharding in SHARDINGS:
        layer = built(sharding)
        values = np.random.default_rng(1).normal(size=(150, 8)).astype("float32")
        if hvd.rank() == hvd.size() - 1:
            layer.tables.write(1, 0, values)
            layer.tables.write(1, 7, values[:20])
        exchange.gather(None, "that it is written")
        expected = values.copy()
        expected[7:27] = values[:20]
        np.testing.assert_array_equal(layer.get_embedding_tables()["adagrad"], expected)
        exchange.gather(None, "that all have read")


@case
def many_blocks_are_read_and_written() -> None:
    """A table of more than one block on each rank; the ranks read each other's at once."""
    from trepak.tf_plugins.layers import embedding_rows

    block, embedding_rows._BLOCK_BYTES = embedding_rows._BLOCK_BYTES, 200
    try:
        layer = built("row")
        before = tables_of(layer)
        exchange.gather(None, "that all have read")
        if hvd.rank() == 0:
            layer.tables.write(1, 0, before["adagrad"] + 1)
        exchange.gather(None, "that it is written")
        np.testing.assert_array_equal(tables_of(layer)["adagrad"], before["adagrad"] + 1)
        exchange.gather(None, "that all have read")
    finally:
        embedding_rows._BLOCK_BYTES = block


@case
def a_layer_is_read_until_all_ranks_have_let_it_go() -> None:
    layer: Any = built("row")
    expected = tables_of(layer)
    exchange.gather(None, "that all have read")
    store = layer.tables.store.number
    if hvd.rank() == 1:
        del layer
        gc.collect()
        with pytest.raises(tf.errors.FailedPreconditionError, match="is not open"):
            call("embedding_statistics", store=store)
    exchange.gather(None, "that the layer is gone")
    if hvd.rank() == 0:
        check_equal(tables_of(layer), expected)


@case
def rows_that_are_not_there_are_refused() -> None:
    rows = built("row").tables.rows
    with pytest.raises(tf.errors.InvalidArgumentError, match="no shard 99"):
        _read(rows, 99)
    refused = (tf.errors.InvalidArgumentError, tf.errors.FailedPreconditionError)
    for number, shard in rows.shards(0):  # this rank's and others'
        with pytest.raises(refused, match=f"shard {number} has {shard.rows} rows, not 5"):
            rows.read(number, shard.rows, 5)
    exchange.gather(None, "that all have asked")


def _read(rows: Any, number: int) -> Any:
    from trepak.ops.loader import load

    return load().trepak_embedding_read(number, 0, 1, **rows._ids)

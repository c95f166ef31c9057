"""Embedding tables in Keras' files: whole tables, which one rank alone writes or reads."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import psutil

from trepak.tf_plugins.layers import default_rows, described_tables
from trepak.tf_plugins.layers.embedding_tables import EmbeddingTables

# More of the free memory than this is not taken: the training goes on beside it.
MOST_OF_FREE_MEMORY = 0.5
_ABOUT = "tables"
_WEIGHTS, _SLOTS = "table_weights_", "table_slots_"
_FLOAT_BYTES = 4


def is_key(key: str) -> bool:
    """Tells whether a key of a layer's store is one of these tables'."""
    return key == _ABOUT or key.startswith((_WEIGHTS, _SLOTS))


def save(layer: str, tables: EmbeddingTables, store: Any) -> None:
    """Puts whole tables, and what their optimizers keep, into a store of Keras; see `check_memory`.

    Args:
        layer: its name, for errors.
        tables: the layer's.
        store: what `save_own_variables` gets.

    Raises:
        MemoryError: this rank has not enough memory for them.
    """
    check_memory(layer, tables)
    about = json.dumps(described_tables.describe(tables)).encode()
    store[_ABOUT] = np.frombuffer(about, np.uint8)
    for number, table in enumerate(tables.plan.tables):
        values = tables.rows.whole(number, with_slots=True)
        store[f"{_WEIGHTS}{number}"] = values[:, 0]
        if table.kept:
            store[f"{_SLOTS}{number}"] = values[:, 1:]


def check_memory(layer: str, tables: EmbeddingTables) -> None:
    """Checks that this rank has memory for whole tables.

    Keras makes a file in memory, and a table is copied on its way there.

    Raises:
        MemoryError: they would need too large a part of the memory that is free.
    """
    sizes = [
        table.rows * table.columns * (1 + table.kept) * _FLOAT_BYTES for table in tables.plan.tables
    ]
    needed, free = sum(sizes) + 2 * max(sizes), psutil.virtual_memory().available
    if needed > MOST_OF_FREE_MEMORY * free:
        raise MemoryError(
            f"to save the tables of the layer {layer!r} in a Keras file, rank {tables.rows.rank} "
            f"needs {needed / 2**30:.3f} GiB, more than {MOST_OF_FREE_MEMORY:.0%} of the "
            f"{free / 2**30:.3f} GiB that are free: save them on all ranks with "
            "trepak.layers.save_tables(model, folder), and make the layer with "
            "tables_in_files=False, which leaves them out of Keras' files."
        )


def load(layer: str, tables: EmbeddingTables, store: Any) -> None:
    """Sets the tables of all ranks to what a store of Keras has.

    Args:
        layer: its name, for errors.
        tables: the layer's.
        store: what `load_own_variables` gets.

    Raises:
        ValueError: there are none, or others; nothing is loaded then.
    """
    if _ABOUT not in store.keys():  # noqa: SIM118 - a store of Keras is no mapping
        raise ValueError(
            f"the file has no tables for the layer {layer!r}: another layer has written it, such "
            "as KerasRS's, or one with tables_in_files=False. Load into such a layer, or set the "
            "tables with set_embedding_tables or trepak.layers.load_tables."
        )
    saved = json.loads(np.asarray(store[_ABOUT]).astype(np.uint8).tobytes())
    places = described_tables.check(layer, tables, saved, "the file", slots=True)
    for number, place in enumerate(places):
        weights = np.asarray(store[f"{_WEIGHTS}{place}"])[:, None]
        slots = saved[place]["slots"]
        kept = np.asarray(store[f"{_SLOTS}{place}"]) if slots else weights[:, :0]
        for first, count in tables.rows.blocks(tables.rows.whole_shard(number)):
            rows = slice(first, first + count)
            tables.rows.write_table(number, first, np.concatenate([weights[rows], kept[rows]], 1))
        default_rows.load(tables.rows, number, saved[place])

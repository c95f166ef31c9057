"""What files say of embedding tables, and whether a layer's tables are such."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from trepak.tf_plugins.layers import default_rows, row_optimizers
from trepak.tf_plugins.layers.embedding_tables import EmbeddingTables


def describe(tables: EmbeddingTables, only_mine: bool = False) -> list[dict[str, Any]]:
    """Returns by table what `check` looks at, and the state of its optimizer; JSON can hold it.

    Its "slots" are all numbers that files have behind a weight.

    Args:
        tables: a layer's.
        only_mine: leave out what other ranks have of default rows; see `default_rows.joined`.
    """
    return [
        {
            "name": table.name,
            "rows": table.rows,
            "columns": table.columns,
            "slots": table.kept,
            "optimizer": row_optimizers.described(optimizer),
            **row_optimizers.state_of(optimizer),
            **default_rows.described(
                tables.rows, number, tables.store.min_count(number), only_mine
            ),
        }
        for number, (table, optimizer) in enumerate(
            zip(tables.plan.tables, tables.optimizers, strict=True)
        )
    ]


def check(
    layer: str,
    tables: EmbeddingTables,
    saved: Sequence[dict[str, Any]],
    where: str,
    slots: bool,
    remedy: str = "",
) -> list[int]:
    """Checks that a layer's tables are those that were saved.

    Args:
        layer: its name, for errors.
        tables: the layer's.
        saved: what `describe` has returned.
        where: the file, for errors.
        slots: whether what optimizers keep is wanted, too.
        remedy: what else can be done where that is not the same, for errors.

    Returns:
        By table of the layer, its place among those that were saved.

    Raises:
        ValueError: tables have other names, shapes or min_counts, or were trained by other
            optimizers.
    """
    theirs = {table["name"]: number for number, table in enumerate(saved)}
    mine = {table.name for table in tables.plan.tables}
    if set(theirs) != mine:
        raise ValueError(
            f"{where} has the tables {', '.join(sorted(theirs))}, but the layer {layer!r} has "
            f"{', '.join(sorted(mine))}: load it into a layer with the same TableConfigs."
        )
    places = [theirs[table.name] for table in tables.plan.tables]
    every = zip(tables.plan.tables, tables.optimizers, places, strict=True)
    for number, (table, optimizer, place) in enumerate(every):
        other = saved[place]
        if (other["rows"], other["columns"]) != (table.rows, table.columns):
            raise ValueError(
                f"the table {table.name!r} of {where} has {other['rows']} rows of "
                f"{other['columns']} numbers, but that of the layer {layer!r} has {table.rows} of "
                f"{table.columns}: give its TableConfig the vocabulary_size and embedding_dim that "
                "were saved."
            )
        least, other_least = tables.store.min_count(number), other.get(default_rows.MIN_COUNT, 0)
        if least != other_least:
            raise ValueError(
                f"the table {table.name!r} of {where} was saved with min_count={other_least}, but "
                f"that of the layer {layer!r} has {least}: give the layer what was saved, or take "
                "plain tables from trepak.layers.export_tables."
            )
        rule, other_rule = row_optimizers.described(optimizer)["name"], other["optimizer"]["name"]
        if slots and rule != other_rule:
            raise ValueError(
                f"the table {table.name!r} of {where} was trained by {other_rule}, but that of the "
                f"layer {layer!r} is by {rule}: give its TableConfig the optimizer that was saved"
                f"{remedy}."
            )
    return places

"""What a training of clicks ends with: tables, a picture, and the weights in files."""

from __future__ import annotations

import argparse
from collections import Counter
from typing import Any

import trepak
from trepak.layers import save_tables
from trepak.scripts.entrance import console, table_of
from trepak.scripts.examples.ctr_picture import draw
from trepak.scripts.examples.ctr_progress import Progress


def report(model: Any, embedding: Any, progress: Progress, options: argparse.Namespace) -> None:
    """Shows what came out, on rank 0; a collective call."""
    plan, folder = embedding.tables.plan, options.output / "tables"
    save_tables(embedding, folder)
    counted = trepak.allgather_object(progress.counted, name="statistics of tables")
    if trepak.rank() != 0:
        return
    weights, picture = options.output / "dense.weights.h5", options.output / "ctr.png"
    model.save_weights(weights)
    draw(f"{model.name}, {trepak.size()} ranks", progress, plan, counted, picture)
    shown = console()
    shown.print(_result(progress, counted[0]["updates"]))
    shown.print(_by_rank(counted, plan))
    print(
        f"dense weights  {weights}\ntables         {folder}\npicture        {picture}", flush=True
    )


def _result(progress: Progress, updates: int) -> Any:
    table = table_of("Result", "", "")
    table.show_header = False
    held_out = len(progress.data.held_out[1]) * trepak.size()
    table.add_row("AUC", f"{progress.auc[-1]:.4f} of {held_out:,} samples held out")
    if progress.data.best is not None:
        table.add_row("best AUC", f"{progress.data.best:.4f}, of the model that drew the clicks")
    table.add_row("samples/s", f"{progress.samples_per_second():,.0f}")
    table.add_row("updates", f"{updates:,}")
    table.add_row("staleness", f"look-ups missed {progress.most_stale} updates at most")
    return table


def _by_rank(counted: list[Counter[str]], plan: Any) -> Any:
    table = table_of(
        "By rank", "rank", "MiB of tables", "ids a batch", "unique rows a batch", "rows looked up"
    )
    for column in table.columns:
        column.justify = "right"
    total = sum(one["rows_looked_up"] for one in counted)
    ids = sum(one.look_ups for one in plan.tables)
    for rank, (one, size) in enumerate(zip(counted, plan.bytes_by_rank(), strict=True)):
        table.add_row(
            str(rank),
            f"{size / 2**20:,.1f}",
            f"{ids:,}",
            f"{ids * one['unique_rows'] / one['ids']:,.0f}",
            f"{one['rows_looked_up'] / total:.1%}",
        )
    return table

"""Sharded checkpoints of embedding tables: each rank writes and reads what it has itself."""

from __future__ import annotations

import contextlib
import secrets
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from trepak.horovod_ext import basics, exchange
from trepak.tf_plugins.layers import (
    default_rows,
    described_tables,
    embedding_overlap,
    row_optimizers,
    table_files,
)
from trepak.tf_plugins.layers.distributed_embedding import DistributedEmbedding
from trepak.tf_plugins.layers.embedding_plan import Table
from trepak.tf_plugins.layers.table_files import Index, RowsFile

_WEIGHTS = slice(0, 1)
_ERRORS: dict[str, type[Exception]] = {"ValueError": ValueError, "OSError": OSError}


def save_tables(of: Any, folder: str | Path) -> None:
    """Saves the tables of a layer, or of all such layers of a model, and what optimizers keep.

    A collective call. The folder is on a file system that all ranks share. What it had before stays
    whole until all ranks have written all of theirs, and is then replaced by one rename.

    Args:
        of: a built `DistributedEmbedding`, or a model with some.
        folder: where files are written; it is made if it is not there.

    Raises:
        ValueError: there is no such layer, or it is not built.
        OSError: a rank could not write, or an error came on its way; raised on all ranks.
        HorovodInternalError: a rank has died.
    """
    folder, layers = Path(folder), _layers(of)
    mine = secrets.token_hex(4) if basics.rank() == 0 else ""
    token: str = exchange.gather(mine, "the name of a checkpoint")[0]
    begun: list[RowsFile] = []
    before = f"; what was saved in {folder} before is still there"

    def write() -> tuple[list[dict[str, Any]], list[list[dict[str, Any]]]]:
        folder.mkdir(parents=True, exist_ok=True)
        files = [
            table_files.to_json(_write(folder, begun, about, read))
            for about, read in _mine(layers, token)
        ]
        return files, [described_tables.describe(one.tables, only_mine=True) for one in layers]

    try:
        written = _together(write, "saving embedding tables", before)
    except (OSError, ValueError):  # all ranks have seen it, so that no rank will commit
        for one in begun:
            with contextlib.suppress(OSError):
                (folder / one.file).unlink(missing_ok=True)
        raise

    def commit() -> None:
        if basics.rank() == 0:
            by_rank = [about for _, about in written]
            described = [
                {
                    "name": layer.name,
                    "tables": [*map(default_rows.joined, zip(*of_layer, strict=True))],
                }
                for layer, *of_layer in zip(layers, *by_rank, strict=True)
            ]
            all_files = [table_files.from_json(one) for files, _ in written for one in files]
            table_files.commit(folder, Index(token, described, all_files))

    _together(commit, "saving embedding tables", before)


def load_tables(of: Any, folder: str | Path, optimizers: bool = True) -> None:
    """Loads what `save_tables` has saved, on any number of ranks and with any sharding.

    A collective call. All files are checked before anything is loaded; each rank checks a part.

    Args:
        of: a built `DistributedEmbedding`, or a model with as many as were saved, in their order.
        folder: where it was saved.
        optimizers: whether to load what optimizers keep, and how many updates there were. Which
            rows are admitted is loaded anyhow.

    Raises:
        ValueError: other tables were saved; raised on all ranks, as the next one is.
        OSError: a file is missing or damaged.
        HorovodInternalError: a rank has died.
    """
    folder, layers = Path(folder), _layers(of)
    found: list[tuple[Index, list[list[int]]]] = []

    def check() -> str:
        index = table_files.read_index(folder)
        found.append((index, _places(layers, index, folder, optimizers)))
        for number, about in enumerate(index.files):
            table_files.check_size(folder, about)
            if number % basics.size() == basics.rank():
                table_files.check(folder, about)
        return index.token

    tokens = _together(check, "checking a checkpoint of embedding tables")
    if len(set(tokens)) > 1:
        raise OSError(
            f"ranks see different checkpoints in {folder}: it must be on a file system that all "
            "ranks share, and nobody may save there meanwhile."
        )
    index, places = found[0]

    def read() -> None:
        for number, (layer, of_tables) in enumerate(zip(layers, places, strict=True)):
            _read(layer, number, of_tables, index, folder, optimizers)

    _together(read, "loading embedding tables")


def _read(
    layer: Any, number: int, places: Sequence[int], index: Index, folder: Path, optimizers: bool
) -> None:
    """Reads this rank's rows of a layer, from the parts of files that have them."""
    rows = layer.tables.rows
    for table, place in enumerate(places):
        saved = index.layers[number]["tables"][place]
        about = rows.plan.tables[table]
        of_file, of_row = _planes(saved["slots"], about, optimizers)
        # What an optimizer keeps stands between the weights and whether the row is admitted.
        keeps = about.admits and not optimizers
        planes = 1 + about.kept if optimizers else 1
        files = [
            (table_files.mapped(folder, one)[:, of_file], one.shard)
            for one in index.files_of(number, place)
        ]
        for own, shard in rows.shards(table):
            if shard.rank != rows.rank:
                continue
            for first, count in rows.blocks(shard):
                block = embedding_overlap.block(shard, first, count)
                values = (
                    rows.read(own, first, count, with_slots=True)
                    if keeps
                    else np.empty((count, planes, shard.columns), "float32")
                )
                for mapped, of in files:
                    embedding_overlap.copy(values[:, of_row], block, mapped, of)
                rows.write(own, first, values)
        default_rows.load(rows, table, saved, optimizers, only_mine=True)
        if optimizers:
            row_optimizers.set_state(layer.tables.optimizers[table], saved)


def _planes(saved: int, table: Table, optimizers: bool) -> tuple[slice, slice]:
    """Returns what is loaded of what files have behind weights, and where a row has it.

    Which rows are admitted belongs to the weights, and stands behind what optimizers keep.
    """
    if optimizers:
        return slice(None), slice(None)
    return (
        (slice(None, None, saved), slice(None, None, table.kept))
        if table.admits
        else (_WEIGHTS, _WEIGHTS)
    )


def _layers(of: Any) -> list[Any]:
    """Returns the layers that have tables, after what steps have left for later is done."""
    if isinstance(of, DistributedEmbedding):
        found = [of]
    else:
        of.save_own_variables({})  # before weights are seen, a model's hooks finish its steps
        layers = of._flatten_layers(include_self=False)
        found = [layer for layer in layers if isinstance(layer, DistributedEmbedding)]
    if not found:
        raise ValueError(f"{of.name} has no trepak.layers.DistributedEmbedding.")
    for layer in found:
        if layer.tables is None:
            raise ValueError(
                f"the layer {layer.name!r} is not built: build it, or call it, before its tables "
                "are saved or loaded."
            )
    return found


def _mine(layers: Sequence[Any], token: str) -> list[tuple[RowsFile, Any]]:
    """Returns the files that this rank has to write, and for each what reads its rows."""
    found = []
    for number, layer in enumerate(layers):
        rows = layer.tables.rows
        for own, shard in enumerate(rows.plan.shards):
            if shard.rank == rows.rank and shard.rows:
                planes = 1 + rows.plan.tables[shard.table].kept
                about = table_files.begun(token, number, own, shard, planes)
                found.append(
                    (about, lambda *block, own=own, rows=rows: rows.read(own, *block, True))
                )
    return found


def _write(folder: Path, begun: list[RowsFile], about: RowsFile, read: Any) -> RowsFile:
    begun.append(about)
    return table_files.write(folder, about, read)


def _places(layers: Sequence[Any], index: Index, folder: Path, optimizers: bool) -> list[list[int]]:
    """Returns by layer and table its place in the index.

    Raises:
        ValueError: other tables were saved.
    """
    if len(layers) != len(index.layers):
        raise ValueError(
            f"{folder} has the tables of {len(index.layers)} layers, but there are {len(layers)}: "
            "load them into a model with the same layers."
        )
    return [
        described_tables.check(
            layer.name,
            layer.tables,
            saved["tables"],
            str(folder),
            optimizers,
            ", or load the weights alone, with optimizers=False",
        )
        for layer, saved in zip(layers, index.layers, strict=True)
    ]


def _together(work: Callable[[], Any], what: str, note: str = "") -> list[Any]:
    """Does each rank's part of a work; a collective call.

    Returns:
        By rank, what the work has returned.

    Raises:
        ValueError: a rank has raised one, here on all ranks.
        OSError: a rank has raised anything else, here on all ranks.
    """
    result: Any = None
    error: list[str] = []
    try:
        result = work()
    except Exception as raised:
        error = ["ValueError" if isinstance(raised, ValueError) else "OSError", _text(raised)]
    outcomes = exchange.gather([error, result], what)
    for rank, (theirs, _) in enumerate(outcomes):
        if theirs:
            raise _ERRORS[theirs[0]](f"{what} has failed on rank {rank}: {theirs[1]}{note}")
    return [theirs for _, theirs in outcomes]


def _text(error: Exception) -> str:
    return str(error) or type(error).__name__

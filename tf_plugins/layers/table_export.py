"""Plain tables from a checkpoint, for whoever serves or studies them; no job is needed."""

from __future__ import annotations

import contextlib
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

import numpy as np

from trepak.tf_plugins.layers import default_rows, embedding_overlap, table_files
from trepak.tf_plugins.layers.embedding_plan import Shard
from trepak.tf_plugins.layers.table_files import Index

_BLOCK_BYTES = 4 << 20
_FLOAT_BYTES = 4


def export_tables(folder: str | Path, out: str | Path) -> list[str]:
    """Writes the weights of all tables of a checkpoint, whole; takes memory for a block of rows.

    No collective call: one process does it, with or without a job.

    Args:
        folder: where `save_tables` has saved.
        out: an `.npz` file with all tables; or a folder for a file `TABLE.npy` of each.

    Returns:
        The tables' names there: LAYER.TABLE where layers have tables of the same name.

    Raises:
        OSError: a file of the checkpoint is missing or damaged, or `out` can't be written.
    """
    folder, out = Path(folder), Path(out)
    index = table_files.read_index(folder)
    for about in index.files:
        table_files.check(folder, about)
    tables = _named(index)
    if out.suffix == ".npz":
        with _replaced(out) as file, zipfile.ZipFile(file, "w") as archive:
            for name, (layer, number) in tables.items():
                with archive.open(f"{name}.npy", "w", force_zip64=True) as entry:
                    _write(entry, folder, index, layer, number)
    else:
        out.mkdir(parents=True, exist_ok=True)
        for name, (layer, number) in tables.items():
            with _replaced(out / f"{name}.npy") as file:
                _write(file, folder, index, layer, number)
    return list(tables)


def _named(index: Index) -> dict[str, tuple[int, int]]:
    """Returns layer and number of each table, by a name that can be a file's."""
    every = [
        (table["name"], layer["name"], number, place)
        for number, layer in enumerate(index.layers)
        for place, table in enumerate(layer["tables"])
    ]
    names = [name for name, *_ in every]
    return {
        (name if names.count(name) == 1 else f"{layer}.{name}").replace("/", "_"): (number, place)
        for name, layer, number, place in every
    }


def _write(file: IO[bytes], folder: Path, index: Index, layer: int, number: int) -> None:
    about = index.layers[layer]["tables"][number]
    rows, columns = about["rows"], about["columns"]
    header = {"descr": "<f4", "fortran_order": False, "shape": (rows, columns)}
    np.lib.format.write_array_header_1_0(file, header)
    files = [(table_files.mapped(folder, one), one.shard) for one in index.files_of(layer, number)]
    admits = default_rows.MIN_COUNT in about
    standing = [default_rows.of_shard(about, shard)[:1] for _, shard in files] if admits else []
    size = max(1, _BLOCK_BYTES // (columns * _FLOAT_BYTES))
    for first in range(0, rows, size):
        part = Shard(number, 0, first, 1, min(size, rows - first), 0, columns)
        values = np.empty((part.rows, 1, columns), "<f4")
        for mapped, shard in files:
            embedding_overlap.copy(values, part, mapped[:, :1], shard)
        if admits:
            seen, instead = np.empty_like(values), np.empty_like(values)
            for (mapped, shard), row in zip(files, standing, strict=True):
                embedding_overlap.copy(seen, part, mapped[:, -1:], shard)
                every = np.broadcast_to(row, (shard.rows, 1, shard.columns))
                embedding_overlap.copy(instead, part, every, shard)
            # Look-ups return the default row for what is not admitted.
            np.copyto(values, instead, where=seen < about[default_rows.MIN_COUNT])
        file.write(values.data)


@contextlib.contextmanager
def _replaced(path: Path) -> Iterator[Any]:
    """Opens a file that takes its name when it is complete."""
    new = path.with_name(f"{path.name}.new")
    try:
        with new.open("wb") as file:
            yield file
        new.replace(path)
    except BaseException:
        new.unlink(missing_ok=True)
        raise

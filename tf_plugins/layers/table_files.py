"""Files of rows of embedding tables, and the index that makes them a checkpoint.

A checkpoint is a folder. Its index, `tables.json`, names a file for each shard, in which rows are
one behind the other, float32, [rows, 1 + kept, columns], and has checksums of their blocks. Files
of a new checkpoint have new names, so that the one before stays whole until the index is replaced.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import re
import zlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from trepak.tf_plugins.layers.embedding_plan import Shard

INDEX = "tables.json"
_FORMAT = "trepak embedding tables 1"
_FILE = re.compile(r"[0-9a-f]{8}\.\d+\.\d+\.rows")
_BLOCK_BYTES = 4 << 20
_FLOAT_BYTES = 4


@dataclass(frozen=True)
class RowsFile:
    """A shard's file, as the index has it.

    Attributes:
        file: its name.
        layer: the number of the layer.
        shard: which rows of which of the layer's tables.
        planes: numbers for each weight: itself, what the optimizer keeps, and, of tables that
            admit rows, how often its row was seen.
        block_rows: rows of which there is a checksum, but for the last block.
        checksums: CRC-32 of each block.
    """

    file: str
    layer: int
    shard: Shard
    planes: int
    block_rows: int
    checksums: tuple[int, ...]

    @property
    def bytes(self) -> int:
        """How long it is."""
        return self.shard.rows * self.planes * self.shard.columns * _FLOAT_BYTES

    def blocks(self) -> Iterator[tuple[int, int]]:
        """Yields the first row of each block, and how many it has."""
        for first in range(0, self.shard.rows, self.block_rows):
            yield first, min(self.block_rows, self.shard.rows - first)


def begun(token: str, layer: int, number: int, shard: Shard, planes: int) -> RowsFile:
    """Returns a file that is to be written for a shard, whose number is given."""
    rows = max(1, _BLOCK_BYTES // (planes * shard.columns * _FLOAT_BYTES))
    return RowsFile(f"{token}.{layer}.{number}.rows", layer, shard, planes, rows, ())


def write(folder: Path, about: RowsFile, read: Any) -> RowsFile:
    """Writes a file, so that it outlasts the machine; returns it with its checksums.

    Args:
        folder: where it is written.
        about: what `begun` has returned.
        read: returns rows, given the first and their number.

    Raises:
        OSError: the disk is full, say.
    """
    checksums = []
    try:
        with (folder / about.file).open("xb") as file:
            for first, count in about.blocks():
                rows = np.ascontiguousarray(read(first, count), "<f4").data
                checksums.append(zlib.crc32(rows))
                file.write(rows)
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        raise OSError(
            f"{folder / about.file} can't be written ({error.strerror}): make room there, or save "
            "to another folder"
        ) from error
    return dataclasses.replace(about, checksums=tuple(checksums))


def check_size(folder: Path, about: RowsFile) -> None:
    """Checks that a file is there, and as long as it was.

    Raises:
        OSError: it is not.
    """
    path = folder / about.file
    if not path.exists():
        raise _damaged(path, "is missing")
    if path.stat().st_size != about.bytes:
        raise _damaged(path, f"has {path.stat().st_size} bytes instead of {about.bytes}")


def check(folder: Path, about: RowsFile) -> None:
    """Checks a file's content.

    Raises:
        OSError: it is not what was written.
    """
    check_size(folder, about)
    with (folder / about.file).open("rb") as file:
        for (first, count), checksum in zip(about.blocks(), about.checksums, strict=True):
            block = file.read(count * about.planes * about.shard.columns * _FLOAT_BYTES)
            if zlib.crc32(block) != checksum:
                raise _damaged(folder / about.file, f"is damaged from row {first} on")


def mapped(folder: Path, about: RowsFile) -> Any:
    """Returns a file's rows, of which only those that are used are read."""
    shape = (about.shard.rows, about.planes, about.shard.columns)
    return np.memmap(folder / about.file, "<f4", "r", shape=shape)


def _damaged(path: Path, how: str) -> OSError:
    return OSError(
        f"the file {path} of a checkpoint of embedding tables {how}: put it back from a copy, or "
        "load another checkpoint; nothing has been loaded."
    )


def to_json(about: RowsFile) -> dict[str, Any]:
    """Returns what JSON can hold of it."""
    return dataclasses.asdict(about)


def from_json(about: dict[str, Any]) -> RowsFile:
    """Returns what `to_json` was given."""
    changed = {"shard": Shard(**about["shard"]), "checksums": tuple(about["checksums"])}
    return RowsFile(**{**about, **changed})


@dataclass(frozen=True)
class Index:
    """What a checkpoint has.

    Attributes:
        token: no other checkpoint's.
        layers: by layer, its name and what `described_tables.describe` has returned.
        files: of all layers.
    """

    token: str
    layers: list[dict[str, Any]]
    files: list[RowsFile]

    def files_of(self, layer: int, table: int) -> list[RowsFile]:
        """Returns the files of a table."""
        return [one for one in self.files if one.layer == layer and one.shard.table == table]


def commit(folder: Path, index: Index) -> None:
    """Makes files the checkpoint of a folder by one rename; removes those of others.

    Raises:
        OSError: a file is not there as it was written, or the disk is full; the checkpoint before
            is still there then.
    """
    new = folder / f"{INDEX}.{index.token}"
    try:
        for about in index.files:
            if not (path := folder / about.file).exists() or path.stat().st_size != about.bytes:
                raise OSError(
                    f"{path} was written by another rank and is not to be seen here: the folder "
                    "must be on a file system that all ranks share."
                )
        _write_index(new, index)
        _sync_folder(folder)
        new.replace(folder / INDEX)
    except OSError:
        _remove([new, *(folder / about.file for about in index.files)])
        raise
    _sync_folder(folder)
    kept = {about.file for about in index.files}
    _remove(
        path
        for path in folder.iterdir()
        if path.name.startswith(f"{INDEX}.")
        or (_FILE.fullmatch(path.name) and path.name not in kept)
    )


def _write_index(path: Path, index: Index) -> None:
    content = {"format": _FORMAT, **dataclasses.asdict(index)}
    with path.open("x") as file:
        json.dump({"checksum": _checksum(content), "content": content}, file, indent=1)
        file.flush()
        os.fsync(file.fileno())


def _checksum(content: Any) -> int:
    return zlib.crc32(json.dumps(content, sort_keys=True).encode())


def _remove(paths: Iterable[Path]) -> None:
    for path in paths:
        with contextlib.suppress(OSError):  # what stays is removed by the next checkpoint
            path.unlink(missing_ok=True)


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def read_index(folder: Path) -> Index:
    """Returns a folder's index.

    Raises:
        OSError: there is none, or it is damaged.
    """
    path = folder / INDEX
    try:
        text = path.read_text()
    except FileNotFoundError:
        raise _damaged(path, "is missing") from None
    try:
        outer = json.loads(text)
        content = outer["content"]
        if _checksum(content) != outer["checksum"]:
            raise ValueError("its checksum is another")
        if content["format"] != _FORMAT:
            raise ValueError(f"its format is {content['format']!r}, not {_FORMAT!r}")
        return Index(content["token"], content["layers"], [*map(from_json, content["files"])])
    except (ValueError, KeyError, TypeError) as error:
        raise _damaged(path, f"is damaged ({error})") from None

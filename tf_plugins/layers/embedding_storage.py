"""What an embedding layer keeps rows in, and which rows its tables have."""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

import tensorflow as tf

from trepak.ops.loader import load


@dataclass(frozen=True)
class Storage:
    """Where rows lie, and which ids have one of their own.

    Attributes:
        fast_bytes: of fast memory for a rank's rows, when there is a folder or a device.
        folder: of the files that all other rows lie in; None: they lie in memory.
        device: of TensorFlow, whose memory the fast memory is; None: the host's.
        hashed: the tables that take any id, or whether all do: an id is the row
            splitmix64(id) % vocabulary_size.
        min_count: in how many batches of ranks a row must have been before it is trained for
            itself, for all tables or by name; 0: at once.
        row_limit: how many rows may be trained for themselves, for all tables or by name; 0: all.
    """

    fast_bytes: int = 0
    folder: str | None = None
    device: str | None = None
    hashed: bool | Collection[str] = False
    min_count: int | Mapping[str, int] = 0
    row_limit: int | Mapping[str, int] = 0

    def check(self, names: Collection[str]) -> None:
        """Checks that everything fits together.

        Args:
            names: of the tables.

        Raises:
            ValueError: something is out of bounds, or for a table that there is not.
        """
        if self.fast_bytes < 0 or (self.fast_bytes > 0 and (self.folder or self.device) is None):
            raise ValueError(
                f"fast_bytes={self.fast_bytes!r} must be at least 0, and needs a folder= for the "
                "rows that don't fit into them, or a device= that has them."
            )
        if self.device is not None and not isinstance(self.device, str):
            raise ValueError(f"device={self.device!r} must be a name like 'GPU:0'.")
        if self.device is not None and self.fast_bytes == 0:
            raise ValueError(
                f"device={self.device!r} needs fast_bytes=: how much of its memory rows may take."
            )
        given = {"hashed": self.hashed, "min_count": self.min_count, "row_limit": self.row_limit}
        for option, value in given.items():
            unknown = set() if isinstance(value, int) else set(value) - set(names)
            if unknown:
                raise ValueError(
                    f"{option}= names the tables {sorted(unknown)}, but there are {sorted(names)}."
                )
        for name in names:
            if _of(self.min_count, name) < 0 or _of(self.row_limit, name) < 0:
                raise ValueError(f"min_count= and row_limit= of table {name!r} must be at least 0.")
            if _of(self.row_limit, name) and not _of(self.min_count, name):
                raise ValueError(
                    f"row_limit= of table {name!r} needs a min_count=: a row beyond the limit is "
                    "one that is not admitted."
                )

    def of_table(self, name: str) -> dict[str, Any]:
        """Returns what native code needs to know of a table."""
        hashed = self.hashed if isinstance(self.hashed, bool) else name in self.hashed
        return {
            "hashed": hashed,
            "min_count": _of(self.min_count, name),
            "row_limit": _of(self.row_limit, name),
        }

    def of_store(self) -> dict[str, Any]:
        """Returns what native code needs to know of all tables.

        Raises:
            ValueError: TensorFlow has no such device here.
        """
        device = 0 if self.device is None else _opened(self.device)
        return {"fast_bytes": self.fast_bytes, "folder": self.folder or "", "device": device}

    def config(self) -> dict[str, Any]:
        """Returns the layer's arguments."""
        return {
            "fast_bytes": self.fast_bytes,
            "folder": self.folder,
            "device": self.device,
            "hashed": self.hashed if isinstance(self.hashed, bool) else sorted(self.hashed),
            "min_count": _plain(self.min_count),
            "row_limit": _plain(self.row_limit),
        }


def storage(
    fast_bytes: int,
    folder: str | os.PathLike[str] | None,
    device: str | None,
    hashed: bool | Collection[str],
    min_count: int | Mapping[str, int],
    row_limit: int | Mapping[str, int],
) -> Storage:
    """Returns a layer's arguments as `Storage`."""
    return Storage(
        int(fast_bytes),
        None if folder is None else os.fspath(folder),
        device,
        hashed if isinstance(hashed, bool) else frozenset(hashed),
        _plain(min_count),
        _plain(row_limit),
    )


def _opened(device: str) -> int:
    """Returns the number that native code gives a device."""
    names = [one.name for one in tf.config.list_logical_devices()]
    if _kind(device) not in map(_kind, names):
        here = ", ".join(name.removeprefix("/device:") for name in names)
        raise ValueError(f"device={device!r}: TensorFlow has {here} on this rank.")
    with tf.init_scope(), tf.device(device):
        return int(load().trepak_embedding_device())


def _kind(device: str) -> tuple[Any, Any]:
    """Returns a device's type and index, of any name that TensorFlow takes."""
    found = tf.DeviceSpec.from_string(device if device.startswith("/") else f"/device:{device}")
    return found.device_type and found.device_type.upper(), found.device_index


def _of(given: int | Mapping[str, int], name: str) -> int:
    return given if isinstance(given, int) else int(given.get(name, 0))


def _plain(given: int | Mapping[str, int]) -> int | dict[str, int]:
    return given if isinstance(given, int) else {name: int(value) for name, value in given.items()}

"""How fast this machine computes and copies, measured in a second or two."""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

from trepak.tf_plugins.memory.replay import Machine

_COPIED = 64 << 20  # bytes: no cache has as many
_SIDE = 1024  # of the matrices
_TIMES = 3
_PIECE = 8 << 20  # bytes that are written at once
_FILE = 256 << 20


def measure_machine(folder: Path | None) -> Machine:
    """Returns what a replay's clock runs by, on this machine.

    Args:
        folder: where swapped tensors will lie; None: in memory.

    Raises:
        OSError: a file of 256 MiB can't be written there.
    """
    one, other = np.ones(_COPIED, np.uint8), np.zeros(_COPIED, np.uint8)
    copied = _COPIED / _least(lambda: np.copyto(other, one))
    matrix = np.ones((_SIDE, _SIDE), np.float32)
    result = np.empty_like(matrix)
    operations = 2 * _SIDE**3 / _least(lambda: np.matmul(matrix, matrix, out=result))
    link = copied if folder is None else _file_rate(folder)
    # A copied byte is read and written.
    return Machine(operations, 2 * copied, link)


def _least(run: Callable[[], object]) -> float:
    """Returns the seconds of the fastest of a few runs."""
    return min(_seconds(run) for _ in range(_TIMES))


def _seconds(run: Callable[[], object]) -> float:
    begin = time.perf_counter()
    run()
    return time.perf_counter() - begin


def _file_rate(folder: Path) -> float:
    """Returns bytes per second of a disk, on average of both ways, past the kernel's cache."""
    piece = np.ones(_PIECE, np.uint8)
    with tempfile.TemporaryFile(dir=folder, buffering=0) as file:
        number = file.fileno()

        def write() -> None:
            for _ in range(_FILE // _PIECE):
                file.write(piece.data)
                os.fdatasync(number)

        def read() -> None:
            file.seek(0)
            while file.readinto(piece.data):
                pass

        seconds = _seconds(write)
        os.posix_fadvise(number, 0, 0, os.POSIX_FADV_DONTNEED)
        return 2 * _FILE / (seconds + _seconds(read))

"""Timelines: one trace file per rank, in the folder that TREPAK_TIMELINE or a callback names."""

from __future__ import annotations

import atexit
import socket
import time
from pathlib import Path

from trepak.horovod_ext import config, step_probe
from trepak.ops import timeline as native

_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


def open_for(rank: int, size: int, folder: str | Path, steps: str = ":") -> Path:
    """Begins this rank's file.

    Args:
        rank: this process's.
        size: number of ranks.
        folder: made if it is missing.
        steps: which steps are kept, e.g. "10:20", counted from here on.

    Returns:
        The file.

    Raises:
        ValueError: `steps` is no window.
        OSError: the folder cannot be made.
        tf.errors.UnavailableError: the file cannot be opened.
    """
    first, end = native.parse_steps(steps)
    Path(folder).mkdir(parents=True, exist_ok=True)
    path = Path(folder) / f"rank-{rank}.json"
    host = socket.gethostname()
    about = {
        "rank": rank,
        "size": size,
        "host": host,
        # Processes of one boot of one machine share a steady clock; others are aligned by steps.
        "clock": _BOOT_ID.read_text().strip() if _BOOT_ID.exists() else host,
        "started": time.time(),
        "monotonic": time.monotonic(),  # the same moment on the clock of the events
    }
    native.open_timeline(str(path), rank, f"rank {rank} on {host}", about, first, end)
    step_probe.enable()
    # Also where `fit` ends with an exception; closing twice does no harm.
    atexit.register(native.close_timeline)
    return path


def apply(rank: int, size: int) -> None:
    """Begins a timeline if TREPAK_TIMELINE asks for one; it ends with the process."""
    folder = config.value("TREPAK_TIMELINE")
    if folder:
        open_for(rank, size, folder, config.value("TREPAK_TIMELINE_STEPS"))

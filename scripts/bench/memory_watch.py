"""How much memory a process has allocated, now and at most."""

from __future__ import annotations

import ctypes
import threading

_SECONDS = 0.005  # between looks, each of which takes some microseconds


class _Allocated(ctypes.Structure):
    """What glibc's mallinfo2 returns."""

    _fields_ = [
        (name, ctypes.c_size_t)
        for name in (
            "arena",
            "ordblks",
            "smblks",
            "hblks",
            "hblkhd",
            "usmblks",
            "fsmblks",
            "uordblks",
            "fordblks",
            "keepcost",
        )
    ]


_LIBRARY = ctypes.CDLL(None)
_LIBRARY.mallinfo2.restype = _Allocated


def allocated() -> int:
    """Returns the bytes that this process has allocated and not freed, by all of its threads.

    TensorFlow's tensors are among them if TF_ENABLE_ONEDNN_OPTS is 0: otherwise they come from a
    pool that never shrinks. Pages that are mapped directly, such as tables' rows, are not.
    """
    found = _LIBRARY.mallinfo2()
    return int(found.uordblks + found.hblkhd)


class MemoryWatch:
    """Looks again and again, in a thread, how much is allocated.

    Attributes:
        most: bytes that were found.
    """

    def __init__(self) -> None:
        """Prepares; `start` begins to look."""
        self.most = 0
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def start(self) -> None:
        """Begins to look, once."""
        self.most = allocated()
        self._thread.start()

    def stop(self) -> None:
        """Looks no more."""
        self._stop.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._stop.wait(_SECONDS):
            self.most = max(self.most, allocated())

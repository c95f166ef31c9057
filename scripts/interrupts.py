"""What Ctrl-C and SIGTERM do to a command that runs a job: they end the job, too, in any case."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any


class Interrupts:
    """Makes SIGINT or SIGTERM raise, once, so that the job is stopped before this process is.

    One that comes before there is a job waits for it. A second one does not raise in the midst of
    stopping: it kills the job.
    """

    def __init__(self) -> None:
        self._job: subprocess.Popen[str] | None = None
        self._came: int | None = None  # the first signal
        self._handling = _handling(self._take, signal.SIGINT, signal.SIGTERM)

    def __enter__(self) -> Interrupts:
        self._handling.__enter__()
        return self

    def __exit__(self, *error: Any) -> None:
        self._handling.__exit__(None, None, None)

    def raise_from_now_on(self, job: subprocess.Popen[str]) -> None:
        """Raises KeyboardInterrupt or SystemExit when a signal comes, or now if one has come.

        Args:
            job: leads a process group of its own; the caller stops it when this raises.
        """
        self._job = job
        if self._came is not None:
            self._raise(self._came)

    def _take(self, number: int, frame: Any) -> None:
        if self._came is None:
            self._came = number
            if self._job is not None:
                self._raise(number)
        elif self._job is not None and self._job.returncode is None:
            kill_group(self._job, signal.SIGKILL)

    def _raise(self, number: int) -> None:
        if number == signal.SIGINT:
            raise KeyboardInterrupt
        sys.exit(128 + number)


@contextlib.contextmanager
def uninterrupted() -> Iterator[None]:
    """Lets no Ctrl-C break off what clears up; for what ends by itself within seconds."""
    with _handling(lambda number, frame: None, signal.SIGINT):
        yield


@contextlib.contextmanager
def _handling(handler: Callable[[int, Any], None], *numbers: signal.Signals) -> Iterator[None]:
    """Sets a handler of signals; those that are ignored stay so."""
    if threading.current_thread() is not threading.main_thread():
        yield  # only the main thread may set handlers
        return
    found = {number: signal.getsignal(number) for number in numbers}
    before = {n: one for n, one in found.items() if one not in (None, signal.SIG_IGN)}
    for number in before:
        signal.signal(number, handler)
    try:
        yield
    finally:
        for number, one in before.items():
            signal.signal(number, one)


def kill_group(job: subprocess.Popen[str], number: signal.Signals) -> None:
    """Sends a signal to all processes of a job, if there still are any."""
    with contextlib.suppress(ProcessLookupError):  # it has just ended
        os.killpg(job.pid, number)

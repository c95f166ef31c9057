"""Starts readers on rank 0's machine, and ends them with the job."""

from __future__ import annotations

import atexit
import functools
import json
import os
import pickle
import select
import subprocess
import sys
import time
from collections.abc import Sequence
from typing import Any

from trepak.horovod_ext import basics

_PATIENCE_SECONDS = 2.0  # that a reader gets to end
_running: list[subprocess.Popen[bytes]] = []


def start(pickled: Sequence[bytes], address: str, seconds: float) -> list[dict[str, Any]]:
    """Starts a reader for each pickled `Reading`; they end with this process, however it does.

    Args:
        pickled: what they are to read.
        address: of this machine, that the ranks reach.
        seconds: until all must have begun.

    Returns:
        What each says of itself: "service", "dataset", "address", "port", "pid", "host" and, by
        rank, "specs" of batches as text.

    Raises:
        RuntimeError: one could not begin; all have been ended.
    """
    _end_with_job()
    deadline = time.monotonic() + seconds
    started = [_start() for _ in pickled]
    for (process, _), reading in zip(started, pickled, strict=True):
        _tell(process, pickle.dumps((sys.path, address, reading)), deadline)
    answers = []
    for process, descriptor in started:
        answers.append(_answer(process, descriptor, deadline, seconds))
    for number, one in enumerate(answers):
        if "error" in one:
            end([process for process, _ in started])
            raise RuntimeError(f"reader {number} of the input can't begin: {one['error']}")
    return answers


def end(processes: Sequence[subprocess.Popen[bytes]] | None = None) -> None:
    """Ends readers, by default all."""
    ended = list(_running if processes is None else processes)
    for process in ended:
        if process in _running:
            _running.remove(process)
        if process.stdin is not None:
            process.stdin.close()
    for process in ended:
        try:
            process.wait(_PATIENCE_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


@functools.cache
def _end_with_job() -> None:
    basics.before_shutdown(end)
    atexit.register(end)


def _start() -> tuple[subprocess.Popen[bytes], int]:
    reading, writing = os.pipe()
    # A reader needs no accelerator, and would take its memory from the rank.
    environment = os.environ | {"CUDA_VISIBLE_DEVICES": "-1"}
    environment.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    process = subprocess.Popen(
        [sys.executable, "-m", "trepak.tf_plugins.data.reader", str(writing), str(os.getpid())],
        stdin=subprocess.PIPE,
        bufsize=0,  # what a buffer holds would be written when it is closed, to whoever has ended
        pass_fds=[writing],
        env=environment,
    )
    os.close(writing)
    _running.append(process)
    return process, reading


def _tell(process: subprocess.Popen[bytes], message: bytes, deadline: float) -> None:
    """Writes a message until the deadline: a reader that does not take it gives no answer."""
    assert process.stdin is not None
    descriptor, rest = process.stdin.fileno(), memoryview(message)
    os.set_blocking(descriptor, False)
    while rest:
        left = max(0.0, deadline - time.monotonic())
        if not _is_ready(descriptor, select.POLLOUT, left):
            return
        try:
            rest = rest[os.write(descriptor, rest) :]
        except BrokenPipeError:
            return  # it has ended, which the answer says


def _answer(
    process: subprocess.Popen[bytes], descriptor: int, deadline: float, seconds: float
) -> dict[str, Any]:
    with os.fdopen(descriptor, "rb") as pipe:
        ready = _is_ready(pipe.fileno(), select.POLLIN, max(0.0, deadline - time.monotonic()))
        text = pipe.read() if ready else b""
    if not ready:
        return {
            "error": f"its process {process.pid} has not begun within {seconds:g} s: raise "
            "TREPAK_DEADLINE_SECONDS."
        }
    if not text:
        return {
            "error": f"its process {process.pid} has ended before it began, with the "
            f"exit status {process.wait()}: look for its error in rank 0's output."
        }
    answer: dict[str, Any] = json.loads(text)
    return answer


def _is_ready(descriptor: int, event: int, seconds: float) -> bool:
    """Waits for an event; a rank may have more descriptors than `select.select` can name."""
    poll = select.poll()
    poll.register(descriptor, event)
    return bool(poll.poll(1000 * seconds))

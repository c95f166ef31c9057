"""The thread that hears Fela's token server ends with the iteration."""

from __future__ import annotations

import gc
import queue
import threading
import time
import weakref
from typing import Any

import pytest

import trepak.tf_plugins  # noqa: F401  (imports TensorFlow quietly)
from trepak.horovod_ext.fela import Over, Trained
from trepak.tf_plugins.fela.listening import Listener


class Worker:
    def __init__(self) -> None:
        self.said: queue.SimpleQueue[Any] = queue.SimpleQueue()

    def next(self) -> Any:
        event = self.said.get()
        if isinstance(event, BaseException):
            raise event
        return event


def ears() -> int:
    return sum(thread.name == "trepak Fela ear" for thread in threading.enumerate())


def ends() -> bool:
    deadline = time.monotonic() + 10
    while ears() and time.monotonic() < deadline:
        time.sleep(0.01)
    return not ears()


def test_it_ends_with_an_iteration_in_which_this_rank_got_no_token() -> None:
    """Or a model that is dropped would stay, and its session with it."""
    worker, heard = Worker(), []
    listener = Listener(worker, heard.append)  # type: ignore[arg-type]
    listener.ask(0, to_the_end=True)
    worker.said.put(Trained(1, 0))
    worker.said.put(Over(8, 1.0, 0))
    assert listener.next() == Over(8, 1.0, 0) and heard == [Trained(1, 0)]
    assert ends()
    kept = weakref.ref(worker)
    del worker, listener
    gc.collect()
    assert kept() is None


def test_an_error_reaches_the_trainer_and_ends_it() -> None:
    worker = Worker()
    listener = Listener(worker, lambda event: None)  # type: ignore[arg-type]
    listener.ask(0, to_the_end=False)
    worker.said.put(RuntimeError("rank 1 is gone"))
    with pytest.raises(RuntimeError, match="rank 1 is gone"):
        listener.next()
    assert ends()

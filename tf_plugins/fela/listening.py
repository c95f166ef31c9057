"""Hears the token server beside training (Section III-A)."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable

from trepak.horovod_ext.fela import Ahead, Event, FelaWorker, Over, Token, Trained


class Listener:
    """Begins sums as soon as a sub-model is trained, whatever this rank does meanwhile.

    A rank that sleeps, or trains a long token, would else hold up the sums of all. It listens while
    an iteration is under way or a question is open, and not between: the token server may leave
    then.

    Attributes:
        waited_seconds: in `next`, over all calls.
    """

    def __init__(self, worker: FelaWorker, trained: Callable[[Trained], None]) -> None:
        """Makes it.

        Args:
            worker: this rank, as the token server knows it.
            trained: called in a thread of its own, in the order in which all ranks hear of it.
        """
        self._worker, self._trained = worker, trained
        self.waited_seconds = 0.0
        self._events: queue.SimpleQueue[Event | BaseException] = queue.SimpleQueue()
        self._lock = threading.Lock()
        # All guarded by the lock.
        self._last = -1  # iteration that has begun
        self._ended = -1  # iteration
        self._asks = False  # for a token, or to be ahead, and has no answer yet
        self._listens = False

    def ask(self, iteration: int, to_the_end: bool) -> None:
        """Is to be called before this rank asks for a token.

        Args:
            iteration: the last one that this rank has begun.
            to_the_end: it begins no other before that one is over.
        """
        with self._lock:
            self._last, self._asks = iteration, not to_the_end
            if not self._listens:
                self._listens = True
                threading.Thread(target=self._listen, name="trepak Fela ear", daemon=True).start()

    def next(self) -> Event:
        """Waits for what the token server says next, but for sub-models that are trained.

        Raises:
            HorovodInternalError: a rank has died, left, or kept the others waiting too long.
        """
        began = time.perf_counter()
        event = self._events.get()
        self.waited_seconds += time.perf_counter() - began
        if isinstance(event, BaseException):
            raise event
        return event

    def _listen(self) -> None:
        try:
            while self._goes_on():
                event = self._worker.next()
                if isinstance(event, Trained):
                    self._trained(event)
                    continue
                with self._lock:
                    if isinstance(event, Over):
                        self._ended = event.iteration
                    self._asks &= not isinstance(event, Token | Ahead)
                self._events.put(event)
        except BaseException as error:  # whoever trains is to raise it
            self._events.put(error)

    def _goes_on(self) -> bool:
        with self._lock:
            self._listens = self._asks or self._ended < self._last
            return self._listens

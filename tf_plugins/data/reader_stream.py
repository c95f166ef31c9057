"""What a rank gets of the readers, element by element, and what it says when one has ended."""

from __future__ import annotations

import contextlib
import functools
import queue
import socket
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf
from tensorflow.python.eager import cancellation, context, execute

from trepak.tf_plugins.data.reader import is_open

_HELD = 2  # elements that wait here for the training
_LOOK_SECONDS = 0.5  # between looks at whether readers live
_PATIENCE_SECONDS = 2.0  # for a thread that waits for a reader


class ReaderStream:
    """One rank's elements, of readers by turns. Thread safety: one thread at a time takes."""

    def __init__(
        self, readers: Sequence[dict[str, Any]], rank: int, ranks: int, seconds: float
    ) -> None:
        """Connects to the readers.

        Args:
            readers: what `reader_processes.start` has returned.
            rank: this one.
            ranks: how many there are.
            seconds: that an element may take.

        Raises:
            RuntimeError: a reader can't be reached.
        """
        self._readers, self._rank, self._seconds = list(readers), rank, seconds
        self._lines = [_connected(one, seconds) for one in readers]
        self._elements: queue.Queue[Any] = queue.Queue(_HELD)
        self._ended = threading.Event()
        self._failure: RuntimeError | None = None  # that all later calls raise
        self._awaited = 0  # the reader that the thread waits for
        self._cancel = cancellation.CancellationManager()
        self._thread = threading.Thread(target=self._fill, args=(ranks,), daemon=True)
        self._thread.start()

    def take(self) -> list[Any]:
        """Returns the next element's components; the first one says whether the epoch has ended.

        Raises:
            RuntimeError: a reader has ended, failed, or sent nothing for too long; names it. All
                later calls raise it, too.
        """
        if self._failure is not None:
            raise self._failure
        try:
            return self._taken()
        except RuntimeError as error:
            self._failure = error
            raise

    def _taken(self) -> list[Any]:
        deadline = time.monotonic() + self._seconds
        while True:
            found = None
            with contextlib.suppress(queue.Empty):
                found = self._elements.get(timeout=_LOOK_SECONDS)
            if found is None:
                self._check(deadline)
                continue
            if isinstance(found, Exception):
                said = f"the input's readers: {found}"
                try:
                    self._check(deadline)
                except RuntimeError as gone:
                    # Either may be the cause: readers end with rank 0, which bad data may end.
                    raise RuntimeError(f"{gone} Before that, {said}") from found
                raise RuntimeError(f"rank {self._rank}: {said}") from found
            components: list[Any] = found
            return components

    def close(self) -> None:
        """Takes no more, and lets the readers go; who waits gets an error."""
        self._ended.set()
        self._cancel.start_cancel()  # TensorFlow goes on asking a reader that has gone for an hour
        self._thread.join(_PATIENCE_SECONDS)
        for line in self._lines:
            line.close()

    def _check(self, deadline: float) -> None:
        for number, line in enumerate(self._lines):
            if not is_open(line):
                raise RuntimeError(
                    f"rank {self._rank}: {self._about(number)} has ended: look for its error in "
                    "rank 0's output, and start the job again."
                )
        if time.monotonic() > deadline:
            raise RuntimeError(
                f"rank {self._rank}: {self._about(self._awaited)} has sent nothing for "
                f"{self._seconds:g} s. It may wait for another rank, which has taken no batch: all "
                "ranks must take equally many. Where reading takes longer, raise "
                "TREPAK_DEADLINE_SECONDS or use more readers."
            )

    def _about(self, number: int) -> str:
        reader = self._readers[number]
        return f"reader {number} of the input (pid {reader['pid']} on {reader['host']})"

    def _fill(self, ranks: int) -> None:
        try:
            iterators = [iter(_dataset(one, self._rank, ranks)) for one in self._readers]
            nexts = [functools.partial(_next, one, self._cancel) for one in iterators]
            while not self._ended.is_set():
                self._fill_epoch(nexts)
        except Exception as error:
            self._put(error)

    def _fill_epoch(self, nexts: Sequence[Callable[[], Any]]) -> None:
        step = 0
        while not self._ended.is_set():
            element = self._next_of(nexts, step)
            step += 1
            if element[0]:
                break
            self._put(element)
        for other in range(len(nexts) - 1):  # the epoch ends in each of them
            if not self._next_of(nexts, step + other)[0]:
                raise RuntimeError(
                    "they have read data of different lengths: batches_of must give each reader "
                    "the same, so that shuffles need a seed."
                )
        self._put(element)

    def _next_of(self, nexts: Sequence[Callable[[], Any]], step: int) -> Any:
        self._awaited = step % len(nexts)
        return nexts[self._awaited]()

    def _put(self, item: Any) -> None:
        while not self._ended.is_set():
            with contextlib.suppress(queue.Full):
                self._elements.put(item, timeout=_LOOK_SECONDS)
                return


def _next(iterator: Any, cancel: cancellation.CancellationManager) -> list[Any]:
    """Returns the tensors of an iterator's next element, unless it is cancelled.

    As `next` does it, which can't be cancelled. TensorFlow's own context of cancellation is that of
    all threads, and a training step must not be in it.
    """
    shapes = [execute.make_shape(one, "output_shapes") for one in iterator._flat_output_shapes]
    types = [one.as_datatype_enum for one in iterator._flat_output_types]
    found: list[Any] = execute.execute_with_cancellation(
        b"IteratorGetNext",
        len(types),
        inputs=[iterator._iterator_resource],
        attrs=("output_types", types, "output_shapes", shapes),
        ctx=context.context(),
        cancellation_manager=cancel,
    )
    return found


def _connected(reader: dict[str, Any], seconds: float) -> socket.socket:
    try:
        line = socket.create_connection((reader["address"], reader["port"]), timeout=seconds)
    except OSError as error:
        raise RuntimeError(
            f"the input's reader on {reader['host']} can't be reached at {reader['address']}, port "
            f"{reader['port']}: {error}. Ranks must reach all TCP ports of rank 0's machine."
        ) from error
    line.setblocking(False)
    return line


def _dataset(reader: dict[str, Any], rank: int, ranks: int) -> tf.data.Dataset:
    options = tf.data.Options()
    options.autotune.enabled = False
    options.experimental_optimization.inject_prefetch = False
    with tf.device("CPU:0"):
        return tf.data.experimental.service.from_dataset_id(
            processing_mode=tf.data.experimental.service.ShardingPolicy.OFF,
            service=reader["service"],
            dataset_id=reader["dataset"],
            job_name="training",
            consumer_index=rank,
            num_consumers=ranks,
        ).with_options(options)

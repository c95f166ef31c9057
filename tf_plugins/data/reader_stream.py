"""What a rank gets of the readers, element by element, and what it says when one has ended."""

from __future__ import annotations

import contextlib
import queue
import socket
import threading
import time
from collections.abc import Sequence
from typing import Any

import tensorflow as tf

_HELD = 2  # elements that wait here for the training
_LOOK_SECONDS = 0.5  # between looks at whether readers live


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
            OSError: a reader can't be reached.
        """
        self._readers, self._rank, self._seconds = list(readers), rank, seconds
        self._lines = [_connected(one, seconds) for one in readers]
        self._elements: queue.Queue[Any] = queue.Queue(_HELD)
        self._ended = threading.Event()
        iterators = [iter(_dataset(one, rank, ranks)) for one in readers]
        # It is left behind when a reader ends: TensorFlow goes on asking for an hour.
        threading.Thread(target=self._fill, args=(iterators,), daemon=True).start()

    def take(self) -> list[Any]:
        """Returns the next element's components; the first one says whether the epoch has ended.

        Raises:
            RuntimeError: a reader has ended, failed, or sent nothing for too long; names it.
        """
        deadline = time.monotonic() + self._seconds
        while True:
            try:
                found = self._elements.get(timeout=_LOOK_SECONDS)
            except queue.Empty:
                self._check(deadline)
                continue
            if isinstance(found, Exception):
                self._check(deadline)  # says more, if the reader has gone
                raise RuntimeError(f"rank {self._rank}: the input's readers: {found}") from found
            components: list[Any] = found
            return components

    def close(self) -> None:
        """Takes no more; who waits gets an error."""
        self._ended.set()
        for line in self._lines:
            line.close()

    def _check(self, deadline: float) -> None:
        for number, (reader, line) in enumerate(zip(self._readers, self._lines, strict=True)):
            about = f"reader {number} of the input (pid {reader['pid']} on {reader['host']})"
            if not _lives(line):
                raise RuntimeError(
                    f"rank {self._rank}: {about} has ended: look for its error in rank 0's "
                    "output, and start the job again."
                )
            if time.monotonic() > deadline:
                raise RuntimeError(
                    f"rank {self._rank}: {about}, or one behind it, has sent nothing for "
                    f"{self._seconds:g} s. Raise TREPAK_DEADLINE_SECONDS where reading takes "
                    "longer, or use more readers."
                )

    def _fill(self, iterators: list[Any]) -> None:
        try:
            while not self._ended.is_set():
                self._fill_epoch(iterators)
        except Exception as error:
            self._put(error)

    def _fill_epoch(self, iterators: list[Any]) -> None:
        step = 0
        while not self._ended.is_set():
            element = next(iterators[step % len(iterators)])
            step += 1
            if element[0]:
                break
            self._put(list(element))
        for other in range(len(iterators) - 1):  # the epoch ends in each of them
            if not next(iterators[(step + other) % len(iterators)])[0]:
                raise RuntimeError(
                    "they have read data of different lengths: batches_of must give each reader "
                    "the same, so that shuffles need a seed."
                )
        self._put(list(element))

    def _put(self, item: Any) -> None:
        while not self._ended.is_set():
            with contextlib.suppress(queue.Full):
                self._elements.put(item, timeout=_LOOK_SECONDS)
                return


def _connected(reader: dict[str, Any], seconds: float) -> socket.socket:
    line = socket.create_connection((reader["address"], reader["port"]), timeout=seconds)
    line.setblocking(False)
    return line


def _lives(line: socket.socket) -> bool:
    try:
        return bool(line.recv(1, socket.MSG_PEEK))
    except BlockingIOError:
        return True
    except OSError:
        return False


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

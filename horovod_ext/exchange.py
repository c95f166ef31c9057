"""Small facts exchanged between ranks outside the training graph, as JSON (never pickled code)."""

from __future__ import annotations

import json
import threading
from typing import Any

import numpy as np
import tensorflow as tf
from horovod.tensorflow import allgather, alltoall

from trepak.horovod_ext.basics import ProcessSet, global_process_set

_SEPARATOR = b"\0"  # JSON text never holds this byte


def is_possible() -> bool:
    """Tells whether an exchange can be made here: not while a TensorFlow 1 style graph is built."""
    with tf.init_scope():
        return tf.executing_eagerly()


def gather(fact: Any, tag: str, process_set: ProcessSet = global_process_set) -> list[Any]:
    """Gathers one JSON-able fact from every rank of a process set.

    A collective call: every rank of the set must make it, with the same tag. It may be made while a
    tf.function is traced; it then runs at once, outside the graph.

    Args:
        fact: anything `json.dumps` takes.
        tag: what the exchange is about, the same on every rank.
        process_set: the ranks that take part.

    Returns:
        The facts, in rank order of the process set.

    Raises:
        HorovodInternalError: a rank has left the job.
        RuntimeError: the ranks are not at the same point of the program.
    """
    if process_set.size() == 1:
        return [json.loads(json.dumps(fact))]
    data = json.dumps([tag, fact]).encode() + _SEPARATOR
    with tf.init_scope(), tf.device("CPU:0"):
        local = tf.constant(np.frombuffer(data, np.uint8))
        gathered = allgather(local, name="trepak_exchange", process_set=process_set)
        parts = gathered.numpy().tobytes().split(_SEPARATOR)
    answers = [json.loads(part) for part in parts[:-1]]
    # Horovod does not tell eager collectives of one kind apart, so the tag travels with the fact.
    for rank, (theirs, _) in zip(process_set.ranks, answers, strict=True):
        if theirs != tag:
            raise RuntimeError(
                f"the ranks have gone different ways: rank {rank} exchanges {theirs!r} while this "
                f"rank exchanges {tag!r}. Make every collective call (fit, its callbacks, "
                f"broadcasts) on all ranks, in the same order, and give all the same callbacks."
                f"{thread_hint()}"
            )
    return [answer for _, answer in answers]


def gather_bytes(data: bytes, tag: str) -> list[bytes]:
    """Gathers bytes from every rank of the job, as many as each has; a collective call.

    Args:
        data: of this rank.
        tag: see `gather`.

    Returns:
        By rank, its bytes.

    Raises:
        HorovodInternalError: a rank has left the job.
        RuntimeError: the ranks are not at the same point of the program.
    """
    ends = np.cumsum(gather(len(data), tag))
    if len(ends) == 1:
        return [data]
    local = tf.constant(np.frombuffer(data, np.uint8))
    everything = allgather(local, name="trepak_bytes").numpy()
    return [part.tobytes() for part in np.split(everything, ends[:-1])]


def pass_on(data: bytes, tag: str) -> bytes:
    """Gives bytes to the next rank, and returns those of the one before; a collective call.

    The last rank's go to rank 0. Arguments and errors are those of `gather_bytes`.
    """
    size = global_process_set.size()
    if size == 1:
        return data
    lengths = gather(len(data), tag)
    splits = np.zeros(size, np.int32)
    splits[(global_process_set.rank() + 1) % size] = len(data)
    local = tf.constant(np.frombuffer(data, np.uint8))
    received, _ = alltoall(local, splits=tf.constant(splits), name="trepak_passed_on")
    assert len(received) == lengths[global_process_set.rank() - 1]
    return bytes(received.numpy().tobytes())


def thread_hint() -> str:
    """Returns what errors add outside the main thread: other threads may be the cause."""
    thread = threading.current_thread()
    if thread is threading.main_thread():
        return ""
    return (
        f" This is thread {thread.name!r}: ranks match collectives by their order, which threads "
        "that train at once don't share; train in one thread, or start a job for each model."
    )

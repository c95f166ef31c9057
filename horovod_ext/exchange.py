"""Small facts exchanged between ranks outside the training graph, as JSON (never pickled code)."""

from __future__ import annotations

import json
import threading
from typing import Any

import numpy as np
import tensorflow as tf
from horovod.tensorflow import allgather

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


def thread_hint() -> str:
    """Returns what errors add outside the main thread: other threads may be the cause."""
    thread = threading.current_thread()
    if thread is threading.main_thread():
        return ""
    return (
        f" This is thread {thread.name!r}: ranks match collectives by their order, which threads "
        "that train at once don't share; train in one thread, or start a job for each model."
    )

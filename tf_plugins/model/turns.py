"""Threads of a process that train models: they take turns, in the same order on all ranks."""

from __future__ import annotations

import contextlib
import re
import threading
from collections.abc import Iterator
from dataclasses import dataclass

from trepak.horovod_ext import basics, config, exchange


@dataclass
class _Trainer:
    """A thread that trains.

    Attributes:
        label: what tells it from others.
        alone: no other thread has trained, or waited to, since it came.
    """

    label: str
    alone: bool


_turn = threading.RLock()
_training: dict[int, _Trainer] = {}  # by thread: those that train, or wait to


@contextlib.contextmanager
def one_at_a_time() -> Iterator[None]:
    """Has threads take turns: ranks match collectives by their order.

    Raises:
        RuntimeError: another thread trains for longer than a rank may stay away.
    """
    seconds = int(config.value("TREPAK_STALL_SECONDS")) or threading.TIMEOUT_MAX
    thread = threading.current_thread()
    number = threading.get_ident()
    outermost = number not in _training
    if outermost:
        _training[number] = _Trainer(_label(thread), alone=True)
    if len(_training) > 1:
        for trainer in list(_training.values()):
            trainer.alone = False
    try:
        if not _turn.acquire(timeout=seconds):
            raise RuntimeError(
                f"rank {basics.rank()}: another thread of this process has trained a model for "
                f"{seconds} s, and thread {thread.name!r} waits to train one too. Threads take "
                "turns, as ranks match collectives by their order: train one model after the "
                "other, or start a job for each."
            )
        try:
            yield
        finally:
            _turn.release()
    finally:
        if outermost:
            del _training[number]


def check_turn(process_set: basics.ProcessSet) -> None:
    """Checks that all ranks train in the same thread, where one has several that do.

    A collective call, within `one_at_a_time`. A rank's only thread that trains may be any: there is
    no other to meet.

    Raises:
        ValueError: on every rank: they don't, and so may train different models.
    """
    trainer = _training[threading.get_ident()]
    told = exchange.gather([trainer.label, trainer.alone], "the thread that trains", process_set)
    labels = [label for label, _ in told]
    if len(set(labels)) == 1 or all(alone for _, alone in told):
        return
    odd = next(index for index, one in enumerate(labels) if one != labels[0])
    ranks = process_set.ranks
    raise ValueError(
        f"the thread that trains is {labels[odd]} on rank {ranks[odd]} and {labels[0]} on rank "
        f"{ranks[0]} (this is rank {basics.rank()}), and several threads train at once: ranks "
        "match collectives by their order, so models that train in several threads may meet each "
        "other. Train in one thread, or start a job for each model."
    )


def _label(thread: threading.Thread) -> str:
    """Returns what tells a thread from others of its process, and is the same on other ranks.

    Of the names that Python gives, without the numbers, which count what each process has ever
    started; its place among the live threads of that name instead.
    """
    if thread is threading.main_thread():
        return "the main thread"
    name = _plain(thread)
    alike = [one for one in threading.enumerate() if _plain(one) == name]  # as they were started
    return f"thread {name!r} {alike.index(thread)}"


def _plain(thread: threading.Thread) -> str:
    return re.sub(r"^(Thread|ThreadPoolExecutor)-\d+", r"\1", thread.name)

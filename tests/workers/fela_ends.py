"""How Fela's sessions end: with their models, or with a batch that they were not opened for."""

from __future__ import annotations

import gc
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import keras
import numpy as np
from harness import case
from rna import check_equal_on_all_ranks

import trepak
from trepak.horovod_ext import sessions

SAMPLES = 8
SECONDS = 20  # that what ends by itself gets


def batch(samples: int = SAMPLES) -> tuple[Any, Any]:
    rng = np.random.default_rng([5, trepak.rank()])
    return rng.normal(size=(samples, 6)).astype("float32"), rng.normal(size=(samples, 2))


def small() -> tuple[Any, trepak.Fela]:
    """Returns a model that is compiled to be trained by tokens, the same on all ranks."""
    keras.utils.set_random_seed(1)
    layers = [keras.layers.Dense(4, name="first"), keras.layers.Dense(2)]
    model = keras.Sequential([keras.Input((6,)), *layers])
    fela = trepak.Fela(model, ["first"], threshold=3)
    model.compile("sgd", "mse")
    return model, fela


def counts() -> list[int]:
    """Returns what this process has: sessions, threads, and sockets."""
    descriptors = sum(one.is_socket() for one in Path("/proc/self/fd").iterdir())
    return [len(sessions._open), len(os.listdir("/proc/self/task")), descriptors]


def comes_true(holds: Callable[[], bool]) -> bool:
    deadline = time.monotonic() + SECONDS
    while not holds() and time.monotonic() < deadline:
        time.sleep(0.05)
    return holds()


@case
def models_that_are_dropped_leave_nothing_behind() -> None:
    """Rank 0 drops each later than the others do, which nobody must see as a failure."""
    staying, _ = small()
    staying.train_on_batch(*batch())
    held: list[Any] = [small()]
    held[0][0].train_on_batch(*batch())
    before = counts()
    for _ in range(10):
        model, fela = small()
        model.train_on_batch(*batch())
        if trepak.rank() == 0:
            held[:] = [(model, fela)]
        del model, fela
        gc.collect()
        staying.train_on_batch(*batch())
    if trepak.rank() > 0:
        held.clear()
        gc.collect()
    assert comes_true(lambda: bool(np.less_equal(counts(), before).all())), (counts(), before)
    trepak.barrier()  # the others' sessions have ended, rank 0's last one has not
    if held:
        time.sleep(1)
        held[0][1]._training._open[0].check()
    staying.train_on_batch(*batch())
    check_equal_on_all_ranks(staying)

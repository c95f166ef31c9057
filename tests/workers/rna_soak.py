"""Thousands of rounds with random delays: no rank hangs, none grows."""

from __future__ import annotations

import os
import random
import time
from pathlib import Path
from typing import Any

import keras
from harness import case, counted
from rna import batch, check_equal_on_all_ranks, trainer

import trepak
import trepak.keras as hvd
from trepak.horovod_ext import exchange

ROUNDS = 10_000
STEPS = 250  # of each rank, from flush to flush
LONGEST = 0.006  # seconds of a delay
WARM_UP = 4  # flushes, until every buffer has been used
MOST_GROWTH = 8 << 20  # bytes, from then on; with a buffer kept per round it would be over 60 MiB
SLACK = 2  # threads more, from then on: pools of libraries may grow late, if not with every flush


def resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def count_threads() -> int:
    """Counts native threads too: the rounds' own, Horovod's, TensorFlow's pools."""
    return len(list(Path("/proc/self/task").iterdir()))


@case
def ten_thousand_rounds() -> Any:
    delays = random.Random(hvd.rank())
    keras.utils.set_random_seed(3)
    layers = [keras.layers.Dense(256, activation="tanh"), keras.layers.Dense(3)]
    model = keras.Sequential([keras.Input((6,)), *layers])  # gradients of 10 KB
    optimizer = hvd.DistributedOptimizer(keras.optimizers.SGD(1e-3), sync=trepak.RNA(seed=5))
    step = trainer(model, optimizer)
    rounds, flushes, steps = 0, 0, 0
    before, threads = 0, 0
    while rounds < ROUNDS:
        for number in range(STEPS):
            step(*batch(number))
            time.sleep(delays.uniform(0, LONGEST))
        optimizer.flush()
        check_equal_on_all_ranks(model)
        steps += STEPS
        counters = counted(optimizer)
        rounds, flushes = counters.rounds, flushes + 1
        assert counters.gradients + counters.dropped == steps, counters
        if flushes == WARM_UP:
            before, threads = resident_bytes(), count_threads()
    grown = resident_bytes() - before
    assert grown < MOST_GROWTH, f"{grown / 2**20:.1f} MiB more after {rounds} rounds"
    more = count_threads() - threads
    assert more <= SLACK, f"{more} threads more than {threads} after {rounds} rounds"
    exchange.gather(None, "that all ranks are through")
    return {"rounds": rounds, "grown": grown, "threads": threads, "more_threads": more}

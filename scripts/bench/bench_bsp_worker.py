"""One rank of `trepak bench bsp`: it measures all methods, in one process.

The methods take turns, in blocks of steps. MultiWorkerMirroredStrategy must be made before
TensorFlow runs its first op; Horovod, whose threads poll even when nothing is to be reduced, runs
only while a method that needs it does.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import time
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

import trepak.keras as hvd  # before Keras: it keeps TensorFlow's start-up noise off the terminal

# isort: split
import keras
import tensorflow as tf
from mpi4py import MPI  # initialises MPI, so that Horovod does not end it when it is shut down

from trepak.models import digits
from trepak.scripts.bench import rank
from trepak.scripts.bench.bench_bsp import ALLREDUCE, LOCAL, MIRRORED, OURS
from trepak.scripts.bench.bsp_methods import (
    Ours,
    allreduce_method,
    build_model,
    mirrored_method,
    raw_method,
)
from trepak.scripts.bench.exchanges import RAW_EACH, RAW_GROUPED

# A step is to take 50 ms at least, so the batch is chosen for a little more on one rank alone.
STEP_SECONDS = 0.065
BATCH_MULTIPLE = 8
# The fastest of automatic, 1, 4 and 32 MB on two ranks of one machine, by a little.
BYTES_PER_PACK = 4 * 2**20
CHECKED_STEPS = 5
SETTLE_STEPS = 3  # after Horovod was started: it negotiates new names once

RANKS = MPI.COMM_WORLD


def make_strategy(ports: Sequence[int]) -> Any:
    """Returns MultiWorkerMirroredStrategy over all ranks, one port each; before any other op."""
    workers = [f"127.0.0.1:{port}" for port in ports]
    os.environ["TF_CONFIG"] = json.dumps(
        {"cluster": {"worker": workers}, "task": {"type": "worker", "index": RANKS.rank}}
    )
    communication = tf.distribute.experimental.CommunicationOptions(
        implementation=tf.distribute.experimental.CommunicationImplementation.RING,
        bytes_per_pack=BYTES_PER_PACK,
    )
    try:
        return tf.distribute.MultiWorkerMirroredStrategy(communication_options=communication)
    finally:
        del os.environ["TF_CONFIG"]


def batches(batch: int) -> Any:
    """Returns this rank's digits as an endless dataset of batches, cut beforehand."""
    shard = digits.load().train.shard(RANKS.rank, RANKS.size)
    count = max(1, len(shard) // batch)
    wanted = np.arange(count * batch) % len(shard)
    images = shard.images[wanted].reshape(count, batch, *digits.IMAGE_SHAPE)
    labels = shard.labels[wanted].reshape(count, batch)
    # There is nothing to tune, and the tuner's thread can hold up whoever drops an iterator for up
    # to a minute: it is woken just before it is told to end, and on busy cores sleeps on.
    options = tf.data.Options()
    options.autotune.enabled = False
    return tf.data.Dataset.from_tensor_slices((images, labels)).repeat().with_options(options)


def choose_batch(initial: Sequence[Any]) -> int:
    """Returns a batch whose step takes STEP_SECONDS on one rank, the same for all ranks."""
    batch = 4 * BATCH_MULTIPLE
    method = raw_method(initial, batches(batch), None)
    while True:
        # The fastest step: a disturbed one would lead to a batch that is too small.
        seconds = min(RANKS.allgather(min(intervals(method, 4))))
        if seconds >= STEP_SECONDS:
            return batch
        factor = max(1.1 * STEP_SECONDS / seconds, 1.1)
        batch = math.ceil(batch * factor / BATCH_MULTIPLE) * BATCH_MULTIPLE
        method.dataset = batches(batch)


@contextlib.contextmanager
def horovod_running(needed: bool) -> Iterator[None]:
    """Runs Horovod, where it is needed, on all ranks while the block does."""
    RANKS.Barrier()
    if needed:
        hvd.init()
    yield
    if needed:
        hvd.shutdown()


def intervals(method: Any, steps: int) -> list[float]:
    """Runs a block of steps on all ranks together.

    Args:
        method: what to run.
        steps: how many steps are measured, after some that are not.

    Returns:
        The seconds from the end of each step to the end of the next.
    """
    with horovod_running(method.needs_horovod):
        ends = method.run(SETTLE_STEPS + steps)
    return [float(seconds) for seconds in np.diff(ends)[SETTLE_STEPS - 1 :]]


def idle_share(seconds: float) -> float:
    """Returns the share of a core that this process takes while nothing is to be done."""
    start = time.process_time()
    time.sleep(seconds)
    return (time.process_time() - start) / seconds


def say(what: str) -> None:
    """Prints what is going on, on rank 0."""
    if RANKS.rank == 0:
        print(what, flush=True)


def weight_difference(method: Any, reference: Any) -> float:
    """Returns the largest |a - b| / (atol + rtol |b|) of two methods' weights: at most 1 is close.

    The bounds are those of trepak's exactness: rtol 1e-5, atol 1e-6.
    """
    pairs = zip(method.model.get_weights(), reference.model.get_weights(), strict=True)
    return max(float(np.max(np.abs(a - b) / (1e-6 + 1e-5 * np.abs(b)))) for a, b in pairs)


def measure(rounds: int, steps: int, strategy: Any) -> dict[str, Any]:
    """Measures on this rank; all ranks together.

    Returns:
        JSON-able: the batch, the gradients' bytes, each method's difference from raw Horovod's
        weights after the same steps, the shares of a core taken while idle, and for each round the
        step times of each method, in seconds.
    """
    keras.utils.set_random_seed(0)
    initial = build_model().get_weights()
    say("choosing the batch")
    batch = choose_batch(initial)
    say(f"compiling the steps, {batch} images per process")
    dataset = batches(batch)
    with horovod_running(True):
        methods: dict[str, Any] = {OURS: Ours(initial, dataset)}
    for method in (RAW_GROUPED, RAW_EACH):
        methods[method] = raw_method(initial, dataset, method)
    methods[MIRRORED] = mirrored_method(strategy, initial, dataset)
    # The first steps compile; after them all methods must have come to the same weights.
    for method in methods.values():
        with horovod_running(method.needs_horovod):
            method.run(CHECKED_STEPS)
    differences = {
        name: weight_difference(method, methods[RAW_GROUPED]) for name, method in methods.items()
    }
    methods[LOCAL] = raw_method(initial, dataset, None)
    methods[ALLREDUCE] = allreduce_method(methods[RAW_GROUPED].model)
    for name in (LOCAL, ALLREDUCE):
        intervals(methods[name], 1)

    measured = []
    for number, order in enumerate(rank.rounds_of(list(methods), rounds), 1):
        say(f"round {number} of {rounds}")
        measured.append({name: intervals(methods[name], steps) for name in order})
    idle = {}
    for state in (False, True):
        with horovod_running(state):
            idle["Horovod running" if state else "Horovod shut down"] = idle_share(0.5)
    return {
        "batch": batch,
        "gradient_bytes": sum(w.nbytes for w in initial),
        "differences": differences,
        "rounds": measured,
        "idle": idle,
    }


def main() -> None:
    """Measures; rank 0 writes a list with every rank's outcome."""
    options = rank.options()
    spec = options.spec
    strategy = make_strategy(spec["ports"])
    outcomes = RANKS.gather(measure(spec["rounds"], spec["steps"], strategy))
    if RANKS.rank == 0:
        options.output.write_text(json.dumps(outcomes))


if __name__ == "__main__":
    main()

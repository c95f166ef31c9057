"""Trains one network for real, in a pool or without, and writes what it saw.

It is told by lines on its input how many steps to take, where processes train by turns.
"""

from __future__ import annotations

import json
import re
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

import trepak
from trepak.scripts.bench import rank
from trepak.scripts.bench.dymem_case import Case

_SAMPLED = 0.01  # seconds


def build(case: Case) -> Any:
    """Returns the compiled network."""
    import keras

    from trepak.models.builder import Builder
    from trepak.models.inception_v4 import inception_v4
    from trepak.models.resnet import resnet
    from trepak.scripts.bench.dymem_remat import rematerialized

    keras.utils.set_random_seed(1)
    b, classes = Builder(), 10
    model = (
        resnet(b, 50, classes, case.size)
        if case.network == "resnet50"
        else inception_v4(b, classes, case.size)
    )
    model = rematerialized(model) if case.way == "remat" else model
    model.compile("sgd", "sparse_categorical_crossentropy", jit_compile=False)
    return model


def step_seconds(model: Any, size: int, batch: int, steps: int) -> list[float]:
    """Trains; returns the seconds of all steps but the first."""
    import keras

    ends: list[float] = []
    tell = keras.callbacks.LambdaCallback(
        on_train_batch_end=lambda batch, logs: ends.append(time.perf_counter())
    )
    rng = np.random.default_rng(0)
    x = rng.random((batch * (steps + 1), size, size, 3), "float32")
    y = rng.integers(0, 10, len(x))
    model.fit(x, y, batch, shuffle=False, verbose=0, callbacks=[tell])
    return [after - before for before, after in zip(ends[:-1], ends[1:], strict=True)]


@contextmanager
def anonymous_memory() -> Iterator[list[int]]:
    """Gives a list with the most anonymous memory in RAM that this process has in the block."""
    most, ended = [0], threading.Event()

    def watch() -> None:
        while not ended.wait(_SAMPLED):
            status = Path("/proc/self/status").read_text()
            found = re.search(r"RssAnon:\s*(\d+) kB", status)
            most[0] = max(most[0], int(found[1]) << 10 if found else 0)

    watcher = threading.Thread(target=watch, daemon=True)
    watcher.start()
    try:
        yield most
    finally:
        ended.set()
        watcher.join()


def climb(case: Case, dymem: Any, told: Path) -> None:
    """Trains with one batch after the other until there is no room; tells of each that trained."""
    import tensorflow as tf

    model, rows = build(case), []
    for batch in case.batches:
        if dymem is not None:
            dymem.reset_peaks()
        try:
            with anonymous_memory() as anonymous:
                seconds = median(step_seconds(model, case.size, batch, case.steps))
        except tf.errors.ResourceExhaustedError:
            return
        rows.append({"batch": batch, "seconds": seconds, "anonymous_bytes": anonymous[0]})
        if dymem is not None:
            statistics = dymem.statistics()
            rows[-1] |= {kind: statistics[kind] for kind in ("pool", "swaps", "beyond")}
            rows[-1]["kept_steps"] = statistics["kept_steps"]
        told.write_text(json.dumps(rows))  # at once: a kernel without memory may end the process


def take_turns(case: Case) -> None:
    """Trains so many steps as each line says, and says how long they took; ends with the input."""
    model, batch = build(case), case.batches[0]
    step_seconds(model, case.size, batch, case.steps)
    print("ready", flush=True)
    for line in sys.stdin:
        seconds: Sequence[float] = step_seconds(model, case.size, batch, int(line))
        print(json.dumps(seconds), flush=True)


def predict(case: Case, told: Path) -> None:
    """Replays vDNN and Dymem on this machine's times and an emulated link's."""
    from trepak.tf_plugins.memory.replay import Machine, Traces, model_step, tracing_dymem

    tracing_dymem()
    model, traces = build(case), Traces()
    for batch in case.batches[1:]:
        step = model_step(model, batch)
        step()
        traces.add(step, batch)
    batch = case.batches[0]
    seconds = median(step_seconds(model, case.size, batch, case.steps))
    guess = Machine(1e11, 1e10, case.link)
    scale = traces.replay(batch, "none", guess).seconds / seconds
    here = Machine(1e11 * scale, 1e10 * scale, case.link)
    rows = {"seconds": seconds}
    for policy in ("vdnn", "dymem"):
        rows[policy] = traces.replay(batch, policy, here).seconds
    told.write_text(json.dumps(rows))


def main() -> None:
    """Does what the case says."""
    given = rank.options()
    case: Case = given.spec
    if case.way == "predict":
        predict(case, given.output)
        return
    dymem = None if case.dymem is None else trepak.Dymem(**case.dymem)
    if case.turns:
        take_turns(case)
    else:
        climb(case, dymem, given.output)


if __name__ == "__main__":
    main()

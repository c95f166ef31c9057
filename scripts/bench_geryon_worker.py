"""One rank of `trepak bench geryon`: trains one emulated network by several ways, in turns."""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from typing import Any

import trepak
import trepak.keras as hvd  # before Keras: it keeps TensorFlow's start-up noise off the terminal

# isort: split
import keras
import numpy as np
import tensorflow as tf

from trepak.horovod_ext import parameter_server
from trepak.models import zoo
from trepak.ops.engine import EngineCounters, engine_counters
from trepak.scripts.geryon_arms import ALONE, Arm
from trepak.scripts.idle_watch import IdleWatch

_EACH = 10**6  # groups of gradients: one for each
_WARM_STEPS = 2  # the pipeline fills: gradients of one step are applied in the next


class Trainer:
    """One network, whose step is traced with one transport."""

    def __init__(self, model: str, shrink: float, batch: int, way: str, transport: Any) -> None:
        """Builds and compiles it."""
        keras.utils.set_random_seed(0)
        self.model = zoo.build(model, emulate="k40", shrink=shrink)
        optimizer: Any = keras.optimizers.SGD(0.001)
        if way != ALONE:
            # Horovod itself reduces each gradient when it is there.
            groups = _EACH if transport is None else None
            optimizer = hvd.DistributedOptimizer(optimizer, transport=transport, groups=groups)
        self.model.compile(optimizer, loss="mse", jit_compile=False)
        if transport is not None:
            trepak.overlap(self.model)
        self.model.make_train_function()
        data = np.zeros((batch, 1), "float32"), np.full((batch, 1), hvd.rank(), "float32")
        self._batches = iter(tf.data.Dataset.from_tensors(data).repeat())
        self._overlaps = transport is not None

    def steps(self, count: int) -> list[float]:
        """Takes steps; returns how long each took, in seconds."""
        times = []
        for _ in range(count):
            began = time.perf_counter()
            self.model.train_function(self._batches)
            times.append(time.perf_counter() - began)
        return times

    def finish(self) -> None:
        """Applies what is pending."""
        if self._overlaps:
            self.model.optimizer.flush()


class Worker:
    """Runs arms; those with the same graph share a trainer."""

    def __init__(self, spec: dict[str, Any]) -> None:
        """Prepares; nothing is built before it is needed."""
        self._spec = spec
        self._trainers: dict[str, Trainer] = {}
        self._transports: dict[Arm, Any] = {}

    def measure(self, arm: Arm) -> dict[str, Any]:
        """Takes some steps by an arm; a collective call.

        Returns:
            Seconds of each step, shares of idle and stolen CPU; bytes sent by priority and time
            spent to look priorities up, per step; bytes that came to the server, and its CPU time.
            Of ranks that have no part in it: nothing.
        """
        takes_part = arm.way != ALONE or hvd.rank() == 0
        outcome = self._measured(arm) if takes_part else {}
        hvd.barrier()  # one worker alone has the machine for itself
        return outcome

    def _measured(self, arm: Arm) -> dict[str, Any]:
        spec = self._spec
        if arm not in self._transports:
            self._transports[arm] = arm.transport(spec["shrink"], spec["threshold"])
        transport = self._transports[arm]
        if transport is not None:
            transport.start()
        if arm.graph not in self._trainers:
            self._trainers[arm.graph] = Trainer(
                spec["model"], spec["shrink"], spec["batch"], arm.way, transport
            )
        trainer = self._trainers[arm.graph]
        if arm.way != ALONE:
            hvd.barrier()
        trainer.steps(_WARM_STEPS)
        before = None if transport is None else engine_counters()
        idle = IdleWatch()
        times = trainer.steps(spec["steps"])
        outcome = {"times": times, "idle": idle.share(), "stolen": idle.stolen()}
        if before is not None:
            outcome |= _per_step(before, engine_counters(), spec["steps"])
            trainer.finish()
            parameter_server.stop()
        return outcome


def _per_step(before: EngineCounters, after: EngineCounters, steps: int) -> dict[str, Any]:
    sent = zip(before.bytes_by_priority, after.bytes_by_priority, strict=True)
    return {
        "bytes": [(now - then) / steps for then, now in sent],
        "lookup_ms": 1000 * (after.lookup_seconds - before.lookup_seconds) / steps,
        "served_bytes": after.served_bytes - before.served_bytes,
        "serving_s": after.serving_seconds - before.serving_seconds,
    }


def main() -> None:
    """Measures together with the other ranks; rank 0 writes what all measured."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--spec", type=Path, required=True, help="what to measure, as JSON")
    parser.add_argument("--output", type=Path, required=True)
    options = parser.parse_args()
    spec = json.loads(options.spec.read_text())
    hvd.init()
    worker = Worker(spec)
    arms = [Arm(way, slice_k) for way, slice_k in spec["arms"]]
    for arm in {arm.graph: arm for arm in arms}.values():  # trace everything first
        worker.measure(arm)
    rounds = []
    for number in range(spec["rounds"]):
        order = arms if number % 2 == 0 else arms[::-1]
        rounds.append({arm.name: worker.measure(arm) for arm in order})
    outcomes = trepak.allgather_object(rounds)
    if hvd.rank() == 0:
        options.output.write_text(json.dumps(outcomes))
    hvd.shutdown()


if __name__ == "__main__":
    main()

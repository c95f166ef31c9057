"""One rank of a bench in a lab: trains one emulated network by several ways, in turns."""

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
from trepak.scripts.bench import arm_optimizers
from trepak.scripts.bench.geryon_arms import ALONE, MOST_STOLEN, Arm
from trepak.scripts.idle_watch import IdleWatch


class Trainer:
    """One network, whose step is traced with one transport."""

    def __init__(self, spec: dict[str, Any], way: str, transport: Any) -> None:
        """Builds and compiles it."""
        keras.utils.set_random_seed(0)
        shrink, stretch = spec["shrink"], spec["stretch"]
        self.model = zoo.build(
            spec["model"], emulate="k40", shrink=shrink, stretch=stretch, **spec["options"]
        )
        variables = self.model.trainable_variables
        optimizer = arm_optimizers.make(way, variables, shrink, transport)
        self.model.compile(optimizer, loss="mse", jit_compile=False)
        if transport is not None:
            trepak.overlap(self.model)
        self.model.make_train_function()
        shape = (spec["batch"], 1)
        data = np.zeros(shape, "float32"), np.full(shape, hvd.rank(), "float32")
        self._batches = iter(tf.data.Dataset.from_tensors(data).repeat())
        self._overlaps = transport is not None

    def steps(self, count: int) -> tuple[list[float], list[float]]:
        """Takes steps; returns the seconds of each, and the ms in which it chose priorities."""
        times, lookups = [], []
        chosen = parameter_server.statistics()["lookup_seconds"]
        for _ in range(count):
            began = time.perf_counter()
            self.model.train_function(self._batches)
            times.append(time.perf_counter() - began)
            before, chosen = chosen, parameter_server.statistics()["lookup_seconds"]
            lookups.append(1000 * (chosen - before))
        return times, lookups

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

    def measure(self, arm: Arm, steps: int, warm: int = 0) -> dict[str, Any]:
        """Takes steps by an arm, after some that do not count; a collective call.

        Returns:
            Seconds of each step, and ms in which it looked priorities up; shares of idle and stolen
            CPU; bytes sent by priority, per step; bytes that came to the server, and its CPU time.
            Of ranks that have no part in it: nothing.
        """
        takes_part = arm.way != ALONE or hvd.rank() == 0
        outcome = self._measured(arm, steps, warm) if takes_part else {}
        hvd.barrier()  # one worker alone has the machine for itself
        return outcome

    def _measured(self, arm: Arm, count: int, warm: int) -> dict[str, Any]:
        spec = self._spec
        if arm not in self._transports:
            self._transports[arm] = arm.transport(spec["shrink"], spec["threshold"])
        transport = self._transports[arm]
        if transport is not None:
            transport.start()
        if arm.graph not in self._trainers:
            self._trainers[arm.graph] = Trainer(spec, arm.way, transport)
        trainer = self._trainers[arm.graph]
        if arm.way != ALONE:
            hvd.barrier()
        trainer.steps(warm)
        before = None if transport is None else parameter_server.statistics()
        idle = IdleWatch()
        times, lookups = trainer.steps(count)
        outcome = {"times": times, "idle": idle.share(), "stolen": idle.stolen()}
        if before is not None:
            outcome |= _counted(before, parameter_server.statistics(), count)
            outcome["lookup_ms"] = lookups
            trainer.finish()
            parameter_server.stop()
        return outcome


def undisturbed(worker: Worker, arm: Arm, spec: dict[str, Any]) -> dict[str, Any]:
    """Measures an arm again, so many times at most, if others took the CPU; a collective call.

    Returns:
        What the attempt with the least disturbance measured; rank 0 tells which.
    """
    attempts: list[tuple[float, dict[str, Any]]] = []
    for _ in range(spec["attempts"]):
        measured = worker.measure(arm, arm.steps(spec["steps"]), spec["warm"])
        stolen: float = trepak.broadcast_object(measured.get("stolen", 0.0), root_rank=0)
        attempts.append((stolen, measured))
        if stolen <= MOST_STOLEN:
            break
    return min(attempts, key=lambda attempt: attempt[0])[1]


def _counted(before: dict[str, Any], after: dict[str, Any], steps: int) -> dict[str, Any]:
    sent = zip(before["bytes_by_priority"], after["bytes_by_priority"], strict=True)
    return {
        "bytes": [(now - then) / steps for then, now in sent],
        "served_bytes": after["served_bytes"] - before["served_bytes"],
        "serving_s": after["serving_seconds"] - before["serving_seconds"],
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
        worker.measure(arm, 1)
    rounds = []
    for number in range(spec["rounds"]):
        order = arms if number % 2 == 0 else arms[::-1]
        rounds.append({arm.name: undisturbed(worker, arm, spec) for arm in order})
    outcomes = trepak.allgather_object(rounds)
    if hvd.rank() == 0:
        options.output.write_text(json.dumps(outcomes))
    hvd.shutdown()


if __name__ == "__main__":
    main()

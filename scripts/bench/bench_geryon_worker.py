"""One rank of a bench in a lab: trains one emulated network by several methods, in turns."""

from __future__ import annotations

import time
from typing import Any

import trepak
import trepak.keras as hvd  # before Keras: it keeps TensorFlow's start-up noise off the terminal

# isort: split
import keras
import numpy as np
import tensorflow as tf

from trepak.horovod_ext import parameter_server
from trepak.scripts.bench import exchange_optimizers, rank
from trepak.scripts.bench.exchanges import ALONE, Job, Method
from trepak.scripts.idle_watch import MOST_STOLEN, IdleWatch


class Trainer:
    """One network, whose step is traced with one transport."""

    def __init__(self, job: Job, kind: str, transport: Any) -> None:
        """Builds and compiles it."""
        keras.utils.set_random_seed(0)
        self.model = job.network.build(job.shrink, job.stretch)
        variables = self.model.trainable_variables
        optimizer = exchange_optimizers.make(kind, variables, job.shrink, transport)
        self.model.compile(optimizer, loss="mse", jit_compile=False)
        if transport is not None:
            trepak.overlap(self.model)
        self.model.make_train_function()
        shape = (job.network.batch, 1)
        data = np.zeros(shape, "float32"), np.full(shape, hvd.rank(), "float32")
        self._batches = iter(tf.data.Dataset.from_tensors(data).repeat())

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


class Worker:
    """Runs methods; those with the same graph share a trainer."""

    def __init__(self, job: Job) -> None:
        """Prepares; nothing is built before it is needed."""
        self._job = job
        self._trainers: dict[str, Trainer] = {}
        self._transports: dict[Method, Any] = {}

    def measure(self, method: Method, steps: int, warm: int = 0) -> dict[str, Any]:
        """Takes steps by a method, after some that do not count; a collective call.

        Returns:
            Seconds of each step, and ms in which it looked priorities up; shares of idle and stolen
            CPU; bytes sent by priority, per step; bytes that came to the server, and its CPU time.
            Of ranks that have no part in it: nothing.
        """
        takes_part = method.kind != ALONE or hvd.rank() == 0
        outcome = self._measured(method, steps, warm) if takes_part else {}
        hvd.barrier()  # one worker alone has the machine for itself
        return outcome

    def _measured(self, method: Method, count: int, warm: int) -> dict[str, Any]:
        job = self._job
        if method not in self._transports:
            self._transports[method] = method.transport(job.shrink, job.network.threshold)
        transport = self._transports[method]
        if transport is not None:
            transport.start()
        if method.graph not in self._trainers:
            self._trainers[method.graph] = Trainer(job, method.kind, transport)
        trainer = self._trainers[method.graph]
        if method.kind != ALONE:
            hvd.barrier()
        trainer.steps(warm)
        before = None if transport is None else parameter_server.statistics()
        idle = IdleWatch()
        times, lookups = trainer.steps(count)
        outcome = {"times": times, **idle.shares()}
        if before is not None:
            outcome |= _counted(before, parameter_server.statistics(), count)
            outcome["lookup_ms"] = lookups
            trainer.model.optimizer.flush()
            parameter_server.stop()
        return outcome


def undisturbed(worker: Worker, method: Method, job: Job) -> dict[str, Any]:
    """Measures a method again, so many times at most, if others took the CPU; a collective call.

    Returns:
        What the attempt with the least disturbance measured; rank 0 tells which.
    """
    attempts: list[tuple[float, dict[str, Any]]] = []
    for _ in range(job.attempts):
        measured = worker.measure(method, method.steps(job.steps), job.warm)
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


def measure(job: Job) -> list[dict[str, Any]]:
    """Returns by round: method → what `Worker.measure` returned."""
    worker = Worker(job)
    for method in {method.graph: method for method in job.methods}.values():  # trace all first
        worker.measure(method, 1)
    return [
        {method.name: undisturbed(worker, method, job) for method in order}
        for order in rank.rounds_of(job.methods, job.rounds)
    ]


if __name__ == "__main__":
    rank.main(measure)

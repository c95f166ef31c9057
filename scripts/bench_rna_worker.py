"""One rank of `trepak bench rna`: trains one task by several ways, one after the other."""

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

from trepak.horovod_ext import step_probe
from trepak.ops import emulated_compute
from trepak.ops.step_probe import take_step_times
from trepak.scripts.idle_watch import IdleWatch
from trepak.scripts.rna_cases import Case, Uneven
from trepak.scripts.rna_tasks import Task, task

_DRAWN = 4096  # steps' times, before they begin again


class Slowed(keras.layers.Layer):
    """Passes its input on after the time that a step takes on an uneven cluster."""

    def __init__(self, milliseconds: Any) -> None:
        """Makes it; `milliseconds`: of each training step, one after the other."""
        super().__init__()
        self._times = tf.constant(milliseconds, tf.float32)
        self._step = tf.Variable(0, trainable=False)

    def call(self, x: Any, training: bool = False) -> Any:
        """Returns x."""
        if not training:
            return x
        number = self._step.assign_add(1)
        return emulated_compute(x, self._times[number % _DRAWN], 0.0, label="a step")


class Clock(keras.callbacks.Callback):
    """Times the training alone: from the begin of an epoch until its rounds are applied."""

    def __init__(self) -> None:
        """Makes it."""
        super().__init__()
        self.seconds = 0.0
        self.losses: list[tuple[float, float, float]] = []  # seconds, loss, accuracy

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        """Goes on."""
        hvd.barrier()
        self._began = time.perf_counter()

    def on_test_begin(self, logs: Any = None) -> None:
        """Stops: the callbacks before this one have applied what waited."""
        self.seconds += time.perf_counter() - self._began

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        """Notes the held-out loss."""
        self.losses.append((self.seconds, logs["val_loss"], logs["val_accuracy"]))


def sync_of(way: str, case: Case, seed: int) -> Any:
    """Returns how the ranks synchronize in an arm of the bench."""
    return {
        "horovod": lambda: trepak.BSP(),
        "rna": lambda: trepak.RNA(seed=seed),
        "rna groups": lambda: trepak.RNA(seed=seed, groups=case.groups),
        "eager-sgd": lambda: trepak.EagerSGD("majority", seed=seed),
        "ad-psgd": lambda: trepak.ADPSGD(seed=seed),
    }[way]()


class Worker:
    """Trains a case's task."""

    def __init__(self, case: Case, spec: dict[str, Any]) -> None:
        """Prepares; nothing is built before it is needed."""
        self._case = case
        self._spec = spec
        self._task: Task = task(case.task)

    def train(self, way: str, seed: int) -> dict[str, Any]:
        """Trains once, from new weights; a collective call.

        Returns:
            The curve (seconds of training, held-out loss and accuracy after each epoch), steps,
            seconds in which this rank computed, gradients that were used, shares of idle and stolen
            CPU.
        """
        rank, size, batch = hvd.rank(), hvd.size(), self._spec["batch"]
        keras.utils.set_random_seed(1000 * seed)
        model = self._model(np.random.default_rng([seed, rank]), seed)
        optimizer = hvd.DistributedOptimizer(
            keras.optimizers.SGD(self._task.rate, momentum=0.9), sync=sync_of(way, self._case, seed)
        )
        model.compile(
            optimizer,
            loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True),
            metrics=["accuracy"],
            jit_compile=False,
        )
        shard = tuple(part[rank::size] for part in self._task.train)
        data = tf.data.Dataset.from_tensor_slices(shard).shuffle(4096, seed=seed).repeat()
        data = data.batch(batch)
        samples = self._spec["epoch_steps"] * batch * size
        own_pace = way != "horovod"
        clock = Clock()
        callbacks = [
            hvd.callbacks.BroadcastGlobalVariablesCallback(0),
            hvd.callbacks.MetricAverageCallback(),
            clock,
        ]
        if self._spec["patience"]:
            callbacks.append(keras.callbacks.EarlyStopping(patience=self._spec["patience"]))
        idle = IdleWatch()
        step_probe.enable()
        take_step_times()
        model.fit(
            trepak.global_epochs(data, samples) if own_pace else data,
            epochs=self._spec["epochs"],
            steps_per_epoch=None if own_pace else self._spec["epoch_steps"],
            validation_data=self._task.test,
            validation_batch_size=len(self._task.test[0]),
            callbacks=callbacks,
            verbose=0,
        )
        times = take_step_times()
        outcome = {
            "curve": clock.losses,
            "steps": len(times),
            "computed_s": sum(one.ready - one.begin for one in times if one.begin > 0),
            "rounds": _rounds(optimizer),
            "idle": idle.share(),
            "stolen": idle.stolen(),
        }
        hvd.barrier()
        return outcome

    def _model(self, rng: np.random.Generator, seed: int) -> keras.Model:
        inner = self._task.build()
        x = keras.Input(inner.inputs[0].shape[1:], dtype=inner.inputs[0].dtype)
        times = self._case.ranks[hvd.rank()].draw(rng, _DRAWN)
        return keras.Model(x, inner(Slowed(times)(x)))


def _rounds(optimizer: Any) -> dict[str, Any]:
    pace = optimizer._trepak.pace
    return {} if pace is None else vars(pace.rounds())


def main() -> None:
    """Measures together with the other ranks; rank 0 writes what all measured."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--spec", type=Path, required=True, help="what to measure, as JSON")
    parser.add_argument("--output", type=Path, required=True)
    options = parser.parse_args()
    spec = json.loads(options.spec.read_text())
    given = spec["case"]
    case = Case(**{**given, "ranks": [Uneven(**one) for one in given["ranks"]]})
    hvd.init(process_sets=[hvd.ProcessSet(list(group)) for group in case.groups])
    worker = Worker(case, spec)
    runs: list[dict[str, Any]] = []
    for number, seed in enumerate(spec["seeds"]):
        ways = spec["ways"] if number % 2 == 0 else spec["ways"][::-1]
        for way in ways:
            mine = worker.train(way, seed)
            everyone = trepak.allgather_object(mine)
            runs.append({"way": way, "seed": seed, "ranks": everyone})
            if hvd.rank() == 0:  # after each, so that what comes later can't lose it
                options.output.write_text(json.dumps(runs))
                last = mine["curve"][-1]
                print(f"{way}, seed {seed}: {last[0]:.1f} s, loss {last[1]:.4f}", flush=True)
    hvd.shutdown()


if __name__ == "__main__":
    main()

"""One rank of `trepak bench rna`: trains one task by several ways, one after the other."""

from __future__ import annotations

import argparse
import gc
import json
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
from trepak.ops.rna import rna_counters
from trepak.ops.step_probe import take_step_times
from trepak.scripts.rna_cases import ADPSGD, EAGER, GROUPED, HOROVOD, RNA, Case, Uneven
from trepak.scripts.rna_clock import Clock, StopAtLoss, computed
from trepak.scripts.rna_tasks import Task, task
from trepak.tf_plugins.rounds import Rounds

_DRAWN = 4096  # steps' times, before they begin again
_WARM_UP = 8  # steps of each rank
_PATIENCE = 10  # epochs, as in the thesis
_LEAST = 0.03  # by which the held-out loss must fall in them


class Slowed(keras.layers.Layer):
    """Passes its input on late: a step takes as long as on an uneven cluster.

    Attributes:
        times: ms that training steps are to take, one after another; the first one is skipped.
        own: ms that a step takes without this.
    """

    def __init__(self, times: Any, own: float) -> None:
        """Makes it; see above."""
        super().__init__()
        self.times, self.own = times, own
        self._delays = tf.constant(np.maximum(times - own, 0.0), tf.float32)
        self._step = tf.Variable(0, trainable=False)

    def call(self, x: Any, training: bool = False) -> Any:
        """Returns x."""
        if not training:
            return x
        with tf.control_dependencies([x]):  # an epoch ends with a step that has no batch
            number = self._step.assign_add(1)
        return emulated_compute(x, self._delays[number % _DRAWN], 0.0, label="a step")

    def steps(self) -> int:
        """Returns how many training steps there were."""
        return int(self._step.numpy())

    def drawn(self, first: int) -> Any:
        """Returns the seconds that steps since `first`, a count, were to take, [steps]."""
        return self.times[np.arange(first + 1, self.steps() + 1) % _DRAWN] / 1000


def sync_of(way: str, case: Case, seed: int) -> Any:
    """Returns how the ranks synchronize in an arm of the bench."""
    return {
        HOROVOD: lambda: trepak.BSP(),
        RNA: lambda: trepak.RNA(seed=seed),
        GROUPED: lambda: trepak.RNA(seed=seed, groups=case.groups),
        EAGER: lambda: trepak.EagerSGD("majority", seed=seed),
        ADPSGD: lambda: trepak.ADPSGD(seed=seed),
    }[way]()


class Worker:
    """Trains a case's task."""

    def __init__(self, case: Case) -> None:
        """Prepares; a collective call."""
        self._case = case
        self._task: Task = task(case.task)
        step_probe.enable()
        # What a network takes that waits like the baseline's; all ways of training get the same.
        take_step_times()
        slowed = Slowed(self._draw(0), own=0.0)
        Training(self, HOROVOD, 0, slowed).warm_up()
        times = take_step_times()[1:]  # without the step that compiles
        drawn = slowed.times[2 : 2 + len(times)]
        beyond = [1000 * (t.ready - t.begin) - ms for t, ms in zip(times, drawn, strict=True)]
        everyone = trepak.allgather_object(float(np.median(beyond)))
        self.own = max(0.0, float(np.mean(everyone)))

    @property
    def case(self) -> Case:
        """What is measured."""
        return self._case

    @property
    def task(self) -> Task:
        """What is learnt."""
        return self._task

    def _draw(self, seed: int) -> Any:
        rank = hvd.rank()
        return self._case.ranks[rank].draw(np.random.default_rng([seed, rank]), _DRAWN)

    def train(self, way: str, seed: int) -> dict[str, Any]:
        """Trains once, from new weights; a collective call.

        Returns:
            The curve (seconds of training, held-out loss and accuracy after each epoch), steps and
            the seconds that they were to take, seconds in which this rank computed (see
            `computed`) and in which it copied gradients, ms that the network itself takes per
            step, what RNA counted, shares of idle and stolen CPU.
        """
        slowed = Slowed(self._draw(seed), self.own)
        training = Training(self, way, seed, slowed)
        training.warm_up()
        optimizer = training.optimizer
        optimizer.learning_rate = self._case.rate
        copied, rounds = _copied(optimizer), _rounds(optimizer)
        take_step_times()
        gc.collect()  # not in the midst of what is timed
        before = slowed.steps()
        clock = Clock()
        target = [] if self._case.target is None else [StopAtLoss(self._case.target)]
        early = keras.callbacks.EarlyStopping(patience=_PATIENCE, min_delta=_LEAST)
        training.fit(self._case.epoch_steps, self._case.epochs, clock, early, *target)
        times = take_step_times()
        drawn = slowed.drawn(before)
        outcome = {
            "curve": clock.losses,
            "steps": len(times),
            "drawn_s": float(drawn.sum()),
            **computed(times, drawn, clock.spans),
            "stopped_early": early.stopped_epoch > 0,
            "training_accuracy": clock.training_accuracy,
            "own_ms": self.own,
            "rounds": {name: count - rounds[name] for name, count in _rounds(optimizer).items()},
            "copied_s": _copied(optimizer) - copied,
            **clock.shares(),
        }
        hvd.barrier()
        return outcome


class Training:
    """One training: a new network and its optimizer, by one way."""

    def __init__(self, worker: Worker, way: str, seed: int, slowed: Slowed) -> None:
        """Makes them; the learning rate is 0."""
        keras.utils.set_random_seed(1000 * seed)
        self._worker = worker
        self._own_pace = way != HOROVOD
        inner = worker.task.build()
        x = keras.Input(inner.inputs[0].shape[1:], dtype=inner.inputs[0].dtype)
        self._model = keras.Model(x, inner(slowed(x)))
        self.optimizer = hvd.DistributedOptimizer(
            keras.optimizers.SGD(0.0, momentum=0.9),
            sync=sync_of(way, worker.case, seed),
            sparse_as_dense=True,  # as rounds do: the same bytes travel in all ways
        )
        self._model.compile(
            self.optimizer,
            loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True),
            metrics=["accuracy"],
            jit_compile=False,
        )
        shard = tuple(part[hvd.rank() :: hvd.size()] for part in worker.task.train)
        data = tf.data.Dataset.from_tensor_slices(shard).shuffle(len(shard[0]), seed=seed)
        self._data = data.repeat().batch(worker.case.batch)

    def warm_up(self) -> None:
        """Compiles, and takes a few steps that learn nothing."""
        self.fit(_WARM_UP, 1)

    def fit(self, steps: int, epochs: int, *callbacks: Any) -> None:
        """Trains; `steps`: of an epoch, of each rank on average."""
        worker = self._worker
        samples = steps * worker.case.batch * hvd.size()
        self._model.fit(
            trepak.global_epochs(self._data, samples) if self._own_pace else self._data,
            epochs=epochs,
            steps_per_epoch=None if self._own_pace else steps,
            validation_data=worker.task.test,
            validation_batch_size=len(worker.task.test[0]),
            callbacks=[
                hvd.callbacks.BroadcastGlobalVariablesCallback(0),
                hvd.callbacks.MetricAverageCallback(),
                *callbacks,
            ],
            verbose=0,
        )


def _rounds(optimizer: Any) -> dict[str, Any]:
    pace = optimizer._trepak.pace
    return {} if pace is None else vars(pace.rounds())


def _copied(optimizer: Any) -> float:
    """Returns the seconds in which RNA has copied gradients."""
    stream = getattr(optimizer._trepak.pace, "stream", None)
    is_rna = isinstance(optimizer._trepak.pace, Rounds)
    return rna_counters(stream).copy_seconds if is_rna and stream is not None else 0.0


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
    worker = Worker(case)
    runs: list[dict[str, Any]] = []
    for number, seed in enumerate(spec["seeds"]):
        ways = spec["ways"] if number % 2 == 0 else spec["ways"][::-1]
        for way in ways:
            mine = worker.train(way, seed)
            everyone = trepak.allgather_object(mine)
            runs.append({"way": way, "seed": seed, "ranks": everyone})
            if hvd.rank() == 0:  # after each, so that what comes later can't lose it
                part = options.output.with_suffix(".part")
                part.write_text(json.dumps(runs))
                part.replace(options.output)
                last = mine["curve"][-1]
                print(f"{way}, seed {seed}: {last[0]:.1f} s, loss {last[1]:.4f}", flush=True)
    hvd.shutdown()


if __name__ == "__main__":
    main()

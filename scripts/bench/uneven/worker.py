"""One rank of a job that trains a case by several methods, one after the other."""

from __future__ import annotations

import gc
import json
from typing import Any

import trepak
import trepak.keras as hvd  # before Keras: it keeps TensorFlow's start-up noise off the terminal

# isort: split
import keras
import numpy as np
import tensorflow as tf

from trepak.horovod_ext import sessions, step_probe
from trepak.horovod_ext.step_probe import take_step_times
from trepak.scripts.bench import rank
from trepak.scripts.bench.uneven.cases import Case, Job
from trepak.scripts.bench.uneven.clock import Clock, Snapshots, StopAtTarget, computed
from trepak.scripts.bench.uneven.methods import HOROVOD, plans_barriers, sync_of
from trepak.scripts.bench.uneven.schedules import Slowed, schedule_of
from trepak.scripts.bench.uneven.tasks import Task, task
from trepak.tf_plugins.sync.parameter_server_steps import ServerStep, recorded_steps

_WARM_UP = 8  # steps of each rank
_DIGITS = 4  # of the seconds that are kept of each step, which takes a tenth of one
_PATIENCE = 10  # epochs, as in the thesis


class Worker:
    """Trains a case's task.

    Attributes:
        case: what is measured.
        task: what is learnt.
        own: ms that a step of the network itself takes.
    """

    def __init__(self, case: Case) -> None:
        """Prepares; a collective call."""
        self.case = case
        self.task: Task = task(case.task)
        self._final = self.task.more(case.final_samples if hvd.rank() == 0 else 0)
        step_probe.enable()
        # What a network takes that waits like the baseline's; all methods of training get the same.
        take_step_times()
        training = Training(self, HOROVOD, seed=0, own=0.0)
        training.warm_up()
        times = take_step_times()[1:]  # without the step that compiles
        drawn = training.slowed.times[1 : 1 + len(times)]
        beyond = [1000 * (t.ready - t.begin) - ms for t, ms in zip(times, drawn, strict=True)]
        everyone = trepak.allgather_object(float(np.median(beyond)))
        self.own = max(0.0, float(np.mean(everyone)))

    def train(self, method: str, seed: int) -> dict[str, Any]:
        """Trains once, from new weights; a collective call.

        Returns:
            The curve (seconds of training, held-out loss and accuracy after each epoch), the
            epochs' training accuracies, steps and the seconds that they were to take, seconds in
            which this rank computed (see `computed`), ms that the network itself takes per step,
            what the method has counted, shares of idle and stolen CPU; if the case says so, rank
            0's accuracy at the end, with more samples, the seconds for which each of Horovod's
            steps waited for others, and what ElasticBSP's scheduler has recorded.
        """
        training = Training(self, method, seed, self.own)
        training.warm_up()
        training.slowed.begin_anew()
        optimizer = training.optimizer
        optimizer.learning_rate = self.case.rate
        before, recorded = _counted(optimizer), len(_recorded(optimizer))
        take_step_times()
        gc.collect()  # not in the midst of what is timed
        early = keras.callbacks.EarlyStopping(patience=_PATIENCE)
        clock = self._fit(training, early)
        times = take_step_times()
        drawn = training.slowed.drawn()
        outcome = {
            "curve": clock.losses,
            "steps": len(times),
            "drawn_s": float(drawn.sum()),
            **computed(times, drawn, clock.spans),
            "stopped_early": early.stopped_epoch > 0,
            "training_accuracies": clock.training_accuracies,
            "own_ms": self.own,
            **_since(before, _counted(optimizer)),
            **clock.shares(),
        }
        if self.case.final_samples and hvd.rank() == 0:
            outcome["final_accuracy"] = training.accuracy(*self._final)
        if self.case.records:
            waited = [round(one.done - one.ready, _DIGITS) for one in times]
            outcome["synchronized"] = waited if method == HOROVOD else []
            outcome["recorded"] = _recorded(optimizer)[recorded:] if plans_barriers(method) else []
        training.end()
        return outcome

    def _fit(self, training: Training, early: Any) -> Clock:
        """Trains to the target, or as long as the case says; returns when it reached what."""
        case = self.case
        if case.snapshot_s is not None:
            snapshots = Snapshots(case.snapshot_s)
            decay = keras.callbacks.LearningRateScheduler(case.rate_of)
            training.fit(case.epoch_steps, case.epochs, decay, snapshots)
            snapshots.evaluate(*self.task.test)
            return snapshots
        clock = Clock()
        target = StopAtTarget(case.target, case.target_accuracy)
        training.fit(case.epoch_steps, case.epochs, clock, early, target)
        return clock


class Training:
    """One training: a new network and its optimizer, by one method."""

    def __init__(self, worker: Worker, method: str, seed: int, own: float) -> None:
        """Makes them; the learning rate is 0."""
        keras.utils.set_random_seed(1000 * seed)
        self._case, self._task, self._own_pace = worker.case, worker.task, method != HOROVOD
        self._seed = seed
        self._schedule = schedule_of(worker.case, worker.task, seed, hvd.rank(), hvd.size())
        self.slowed = Slowed(self._schedule.times, own)
        inner = worker.task.build()
        x = keras.Input(inner.inputs[0].shape[1:], dtype=inner.inputs[0].dtype)
        self._model = keras.Model(x, inner(self.slowed(x)))
        self.optimizer = hvd.DistributedOptimizer(
            keras.optimizers.SGD(0.0, momentum=0.9),
            sync=sync_of(method, worker.case, seed),
            sparse_as_dense=True,  # as rounds do: the same bytes travel in all methods
        )
        self._model.compile(
            self.optimizer,
            loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True),
            metrics=["accuracy"],
            jit_compile=False,
        )

    def warm_up(self) -> None:
        """Compiles, and takes a few steps that learn nothing."""
        self.fit(_WARM_UP, 1, warms_up=True)

    def fit(self, steps: int, epochs: int, *callbacks: Any, warms_up: bool = False) -> None:
        """Trains; `steps`: of an epoch, of each rank on average."""
        size, rank, batch = hvd.size(), hvd.rank(), self._case.batch
        train = [tf.constant(part) for part in self._task.train]
        data = self._numbers(warms_up).map(
            lambda numbers: tuple(tf.gather(part, numbers) for part in train)
        )
        held_out = tuple(part[rank::size] for part in self._task.test)  # the mean of all is taken
        validates = self._case.snapshot_s is None
        self._model.fit(
            trepak.global_epochs(data, steps * batch * size) if self._own_pace else data,
            epochs=epochs,
            steps_per_epoch=None if self._own_pace else steps,
            validation_data=held_out if validates else None,
            validation_batch_size=len(held_out[0]) if validates else None,
            callbacks=[
                hvd.callbacks.BroadcastGlobalVariablesCallback(0),
                hvd.callbacks.MetricAverageCallback(),
                *callbacks,
            ],
            verbose=0,
        )

    def _numbers(self, warms_up: bool) -> tf.data.Dataset:
        """Returns the numbers of the samples that this rank trains with, batch by batch."""
        if self._case.dynamic_sharding and not warms_up:
            samples = len(self._task.train[0])
            order = trepak.dynamic_sharding(samples, self._case.batch, self._seed)
            return order.prefetch(1)
        return tf.data.Dataset.from_tensor_slices(self._schedule.samples).repeat()

    def accuracy(self, x: Any, y: Any) -> float:
        """Returns that of this rank's weights."""
        batch = len(self._task.test[0])  # for which the evaluation has been compiled
        found = self._model.evaluate(x, y, batch_size=batch, verbose=0, return_dict=True)
        return float(found["accuracy"])

    def end(self) -> None:
        """Ends its native threads, which would stay until the job ends; a collective call."""
        session = self.optimizer._trepak.step.session
        hvd.barrier()  # nobody still needs this rank's
        if session is not None:
            sessions.close_session(session)


# What kept trainings call some of the statistics.
_KEPT = {
    "copy_seconds": "copied_s",
    "waiting_seconds": "waiting_s",
    "exchange_seconds": "exchange_s",
}


def _counted(optimizer: Any) -> dict[str, dict[str, Any]]:
    """Returns what the methods count whose ranks go at their own pace."""
    step = optimizer._trepak.step
    if step.is_synchronous:
        return {"rounds": {}, "figures": {}}
    counted = step.statistics().items()
    named = {
        _KEPT.get(n, n): v
        for n, v in counted
        if n in _KEPT or n == "not_finite" or n.startswith("planned_")
    }
    return {"rounds": vars(step.rounds()), "figures": named}


def _since(before: dict[str, dict[str, Any]], now: dict[str, dict[str, Any]]) -> dict[str, Any]:
    return {
        kind: {name: count - before[kind].get(name, 0) for name, count in counts.items()}
        for kind, counts in now.items()
    }


def _recorded(optimizer: Any) -> list[list[float]]:
    """Returns the times of steps that ElasticBSP has recorded, on rank 0."""
    if not isinstance(optimizer._trepak.step, ServerStep):
        return []
    found: list[list[float]] = recorded_steps(optimizer).round(_DIGITS).tolist()
    return found


def main() -> None:
    """Measures together with the other ranks; rank 0 writes what all measured."""
    options = rank.options()
    job: Job = options.spec
    hvd.init(process_sets=[hvd.ProcessSet(list(group)) for group in job.case.groups])
    worker = Worker(job.case)
    runs: list[dict[str, Any]] = []
    orders = rank.rounds_of(job.methods, len(job.seeds))
    for seed, methods in zip(job.seeds, orders, strict=True):
        for method in methods:
            mine = worker.train(method, seed)
            everyone = trepak.allgather_object(mine)
            runs.append({"way": method, "seed": seed, "ranks": everyone})
            if hvd.rank() == 0:  # after each, so that what comes later can't lose it
                part = options.output.with_suffix(".part")
                part.write_text(json.dumps(runs))
                part.replace(options.output)
                seconds, loss, accuracy = mine["curve"][-1]
                reached = f"loss {loss:.4f}, accuracy {accuracy:.4f}"
                print(f"{method}, seed {seed}: {seconds:.1f} s, {reached}", flush=True)
    hvd.shutdown()


if __name__ == "__main__":
    main()

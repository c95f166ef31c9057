"""Elastic jobs of the lab in virtual time, by the formulas of the paper (Chicle, section 5.1)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from sklearn.utils import check_random_state

from trepak.scripts.bench.chicle_elastic_job import Spec
from trepak.tf_plugins.chicle.chunk_store import ChunkStore
from trepak.tf_plugins.chicle.cluster import OneProcess
from trepak.tf_plugins.chicle.cocoa import CocoaTrainer, Problem, Problems
from trepak.tf_plugins.chicle.cutting import Cutting
from trepak.tf_plugins.chicle.drawing import DRAWN
from trepak.tf_plugins.chicle.elastic_scaling import ElasticScaling
from trepak.tf_plugins.chicle.placing import place
from trepak.tf_plugins.chicle.rebalancing import Rebalancing
from trepak.tf_plugins.chicle.trainer import Iteration, Solver, Trainer
from trepak.tf_plugins.chicle.training import Training
from trepak.tf_plugins.chicle.virtual import (
    PARTS,
    Change,
    Quota,
    VirtualNodes,
    VirtualTime,
    all_samples,
)


@dataclass(frozen=True)
class Done:
    """An iteration of a training.

    Attributes:
        seconds: that it took.
        until: seconds of training until its end; pauses do not count.
        tasks: that worked.
        steps: of each task; CoCoA's iterations are one.
    """

    seconds: float
    until: float
    tasks: int
    steps: int = 1


Projection = Callable[[Spec, int, Sequence[Change]], list[Done]]


def cocoa(spec: Spec, hosts: int, changes: Sequence[Change]) -> list[Done]:
    """Returns the iterations of a support vector machine's training in virtual time.

    Args:
        spec: of the job; its folder has the samples.
        hosts: with which it begins.
        changes: when hosts leave.
    """
    seed = int(check_random_state(spec.seed).randint(2**31))  # as estimators draw theirs
    x, y = _samples(spec)
    problems = Problems((Problem("hinge", c=spec.c, positive=1.0),), x.shape[1])
    fields = {"x": x, "y": y, "weight": np.ones(len(y))}
    cutting = Cutting(fields, problems.state(), spec.chunk_bytes)
    trainer = CocoaTrainer(problems, spec.tol, 10**6, seed)
    passed = _passed(spec, hosts, changes, trainer, cutting, seed, all_samples)
    return _done(passed, [1] * len(passed.ends))


def local_sgd(spec: Spec, hosts: int, changes: Sequence[Change]) -> list[Done]:
    """Returns the iterations of a network's training in virtual time; see `cocoa`."""
    x, y = _samples(spec)
    cutting = Cutting({"x": x, "y": y}, [DRAWN], spec.chunk_bytes)
    trainer = _Passes(spec, len(y))
    passed = _passed(spec, hosts, changes, trainer, cutting, spec.seed, trainer.quota)
    return _done(passed, trainer.steps)


def _samples(spec: Spec) -> list[np.ndarray]:
    return [np.load(spec.folder / f"{name}.npy") for name in "xy"]


def _passed(
    spec: Spec,
    hosts: int,
    changes: Sequence[Change],
    trainer: Trainer,
    cutting: Cutting,
    seed: int,
    quota: Quota,
) -> VirtualTime:
    """Returns the virtual time of a training by the scheduler that real jobs have."""
    samples = sum(cutting.sizes)
    unit = spec.sample_seconds * samples / PARTS
    nodes = VirtualNodes(samples, unit, dict.fromkeys(range(hosts), 1.0))
    placed = place(cutting, hosts, OneProcess(), seed)
    policies = (ElasticScaling(seed), Rebalancing(seed=seed))
    with Training(trainer, placed, policies=policies, clock=nodes.clock) as training:
        passed = VirtualTime(training, nodes, changes, quota)
        passed.run()
    return passed


def _done(passed: VirtualTime, steps: Sequence[int]) -> list[Done]:
    seconds = np.diff([0.0, *passed.ends])
    rows = zip(seconds, passed.ends, passed.tasks, steps, strict=True)
    return [Done(float(took), until, tasks, count) for took, until, tasks, count in rows]


class _Passes(Trainer):
    """Counts the samples and steps of local SGD, and trains nothing (sections 3 and 5.1).

    K tasks are through what a pass has left in as many steps as take L·K samples each, or a bit
    less: all take as many. An iteration is H steps, or what the pass has left of them.

    Attributes:
        steps: by iteration.
    """

    def __init__(self, spec: Spec, samples: int) -> None:
        self._spec, self._samples = spec, samples
        self._left, self._passes = samples, 0
        self.steps: list[int] = []

    def quota(self, local: int, tasks: int) -> int:
        """Returns how many samples a task takes in the next iteration; see `Quota`."""
        _, samples = self._due(tasks)
        return round(samples * local / self._samples)

    def solver(self, task: int, store: ChunkStore) -> Solver:
        return _Counting(store, self)

    def no_update(self) -> list[np.ndarray]:
        return []

    def model(self) -> list[np.ndarray] | None:
        return None if self._passes == self._spec.epochs else []

    def merge(self, updates: list[np.ndarray], iteration: Iteration) -> None:
        steps, samples = self._due(iteration.tasks)
        self.steps.append(steps)
        self._left -= samples
        if not self._left:
            self._left, self._passes = self._samples, self._passes + 1

    def _due(self, tasks: int) -> tuple[int, int]:
        """Returns the steps of the next iteration, and the samples of all tasks."""
        whole = -(-self._left // (self._spec.batch * tasks))
        steps = min(self._spec.steps, whole)
        return steps, self._left * steps // whole


class _Counting(Solver):
    def __init__(self, store: ChunkStore, trainer: _Passes) -> None:
        super().__init__(store)
        self._trainer = trainer

    def solve(self, model: Any, iteration: Iteration) -> tuple[list[np.ndarray], int]:
        return [], self._trainer.quota(self.store.samples, iteration.tasks)

"""Trainings in virtual time: micro-tasks, uni-tasks, and how soon the load is balanced."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from trepak.scripts.bench.chicle_cases import (
    ALGORITHMS,
    SLOWED,
    Case,
    Scenario,
    Trial,
)
from trepak.tf_plugins.chicle.cluster import OneProcess
from trepak.tf_plugins.chicle.elastic_scaling import ElasticScaling
from trepak.tf_plugins.chicle.placing import place
from trepak.tf_plugins.chicle.policy import Policy
from trepak.tf_plugins.chicle.rebalancing import Rebalancing
from trepak.tf_plugins.chicle.training import Training
from trepak.tf_plugins.chicle.virtual import (
    Change,
    VirtualNodes,
    VirtualTime,
    micro_task_units,
)

UNI = "uni-tasks"


def micro(tasks: int) -> str:
    """Returns how the paper calls so many micro-tasks."""
    return f"micro-tasks ({tasks})"


@dataclass(frozen=True)
class Curve:
    """What a training has reached, and when.

    Attributes:
        epochs: passes over the samples until then.
        seconds: of virtual time until then.
        values: what the algorithm tells.
    """

    epochs: tuple[float, ...]
    seconds: tuple[float, ...]
    values: tuple[float, ...]

    def until(self, goal: float, along: Sequence[float]) -> float:
        """Returns the epochs or seconds until values have fallen to a goal; infinity: never.

        Between two iterations the logarithm of the value is taken to fall evenly.

        Args:
            goal: above 0.
            along: `epochs` or `seconds`.
        """
        reached = np.flatnonzero(np.asarray(self.values) <= goal)
        if not len(reached):
            return float("inf")
        end = int(reached[0])
        if end == 0:
            return float(along[0])
        before, after = np.log(self.values[end - 1 : end + 1])
        share = (before - np.log(goal)) / (before - after)
        return float(along[end - 1] + share * (along[end] - along[end - 1]))


def micro_tasks(trial: Trial, tasks: int) -> Curve:
    """Trains with a fixed number of tasks.

    Returns:
        The curve; its seconds are those of a single node.
    """
    case = trial.case
    nodes = VirtualNodes(case.usual, case.unit, {0: 1.0}, tasks)
    return _train(trial, tasks, nodes).curve


def projected(case: Case, curve: Curve, scenario: Scenario, tasks: int) -> Curve:
    """Returns micro-tasks' curve over time in a scenario, by the paper's formulas.

    These are for as many samples as 16 tasks take. Where each task brings its own batch, more tasks
    take more samples in an iteration, and it takes so much longer.
    """
    now, seconds = 0.0, []
    unit = case.unit * case.taken(tasks) / case.usual
    for _ in curve.epochs:
        seconds.append(now)
        nodes = scenario.slowness[: scenario.nodes_at(now)]
        now += unit * micro_task_units(tasks, nodes)
    return replace(curve, seconds=tuple(seconds))


def uni_tasks(trial: Trial, scenario: Scenario) -> Curve:
    """Trains with a task for each node, and the policies that scale and balance."""
    case, _, seed = trial
    nodes = VirtualNodes(case.usual, case.unit, dict(enumerate(scenario.slowness)))
    policies = (ElasticScaling(seed), Rebalancing(seed=seed))
    return _train(trial, scenario.first, nodes, policies, scenario.changes).curve


def balancing(trial: Trial) -> dict[str, Any]:
    """Returns how long iterations of slowed nodes take, while the policy moves chunks.

    The ideal is the shortest iteration that moves of whole chunks can lead to. To know it exactly,
    samples that don't fill the last chunk are left out.
    """
    case, samples, seed = trial
    algorithm = ALGORITHMS[case.algorithm]
    each, after = algorithm.prepare(trial).cutting.sizes[0], algorithm.balanced_after
    count = case.samples // each * each
    whole = replace(case, goal=0.0, samples=count, most_iterations=after + 1)
    nodes = VirtualNodes(whole.usual, case.unit, dict(enumerate(SLOWED.slowness)))
    policies = (Rebalancing(seed=seed),)
    rows, classes, _ = samples
    cut = Trial(whole, samples._replace(rows=rows[:count], classes=classes[:count]), seed)
    done = _train(cut, SLOWED.first, nodes, policies)
    units = [float(one) for one in np.diff([0.0, *done.ends]) / case.unit]
    ideal = micro_task_units(done.chunks, SLOWED.slowness)
    return {
        "chunks": done.chunks,
        "first_iteration": units[0],
        "after": after,
        "then": units[after],
        "ideal": ideal,
        "vs_ideal": units[after] / ideal,
        "iterations": units,
    }


class _Done(NamedTuple):
    """A training that is over: its curve, when each iteration ended, its number of chunks."""

    curve: Curve
    ends: list[float]
    chunks: int


def _train(
    trial: Trial,
    tasks: int,
    nodes: VirtualNodes,
    policies: Sequence[Policy] = (),
    changes: Sequence[Change] = (),
) -> _Done:
    """Trains until the goal, or the most iterations."""
    algorithm = ALGORITHMS[trial.case.algorithm]
    cutting, trainer = algorithm.prepare(trial)
    placed = place(cutting, tasks, OneProcess(), trial.seed)
    with Training(trainer, placed, policies=policies, clock=nodes.clock) as training:
        passed = VirtualTime(training, nodes, changes, algorithm.quota(trial.case))
        passed.run()
    values = tuple(algorithm.told(trainer))
    epochs = (0.0, *(float(sum) for sum in np.cumsum(passed.epochs)))
    seconds = (0.0, *passed.ends)
    count = len(values)
    curve = Curve(epochs[:count], seconds[:count], values)
    return _Done(curve, passed.ends, len(cutting.sizes))

"""Virtual time is the paper's: task waves, uneven nodes, and nodes that come and go."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import numpy as np
import pytest

from trepak.tf_plugins.chicle import virtual
from trepak.tf_plugins.chicle.chunk_store import ChunkStore
from trepak.tf_plugins.chicle.cluster import OneProcess
from trepak.tf_plugins.chicle.cutting import Cutting
from trepak.tf_plugins.chicle.elastic_scaling import ElasticScaling
from trepak.tf_plugins.chicle.placing import place
from trepak.tf_plugins.chicle.policy import Policy, TasksJoined, TasksLeaving
from trepak.tf_plugins.chicle.rebalancing import Rebalancing
from trepak.tf_plugins.chicle.trainer import Iteration, Solver, Trainer
from trepak.tf_plugins.chicle.training import Training

UNEVEN = [1.0] * 8 + [1.5] * 8
SAMPLES, CHUNKS = 600, 60


class Counting(Solver):
    """Counts its samples, and says that it has processed some of them."""

    def __init__(self, store: ChunkStore, quota: virtual.Quota) -> None:
        super().__init__(store)
        self._quota = quota

    def solve(
        self, model: Sequence[np.ndarray], iteration: Iteration
    ) -> tuple[list[np.ndarray], int]:
        local = self.store.samples
        return [np.array([float(local)])], self._quota(local, iteration.tasks)


class Counter(Trainer):
    """Keeps how many samples took part in each iteration."""

    def __init__(self, iterations: int, quota: virtual.Quota = virtual.all_samples) -> None:
        self._iterations, self._quota = iterations, quota
        self.counts: list[float] = []

    def solver(self, task: int, store: ChunkStore) -> Solver:
        return Counting(store, self._quota)

    def no_update(self) -> list[np.ndarray]:
        return [np.zeros(1)]

    def model(self) -> list[np.ndarray] | None:
        return [np.zeros(1)] if len(self.counts) < self._iterations else None

    def merge(self, updates: list[np.ndarray], iteration: Iteration) -> None:
        self.counts.append(float(updates[0][0]))


@pytest.mark.parametrize("tasks", [16, 24, 32, 64])
@pytest.mark.parametrize("nodes", range(2, 17, 2))
def test_waves_of_micro_tasks(tasks: int, nodes: int) -> None:
    expected = -(-tasks // nodes) * 16 / tasks  # section 5.3
    assert virtual.micro_task_units(tasks, [1.0] * nodes) == pytest.approx(expected)


@pytest.mark.parametrize("nodes", range(1, 17))
def test_uni_tasks_share_the_samples(nodes: int) -> None:
    assert virtual.uni_task_units([1.0] * nodes) == pytest.approx(16 / nodes)


@pytest.mark.parametrize(("tasks", "units"), [(16, 1.5), (24, 4 / 3), (32, 1.5), (64, 1.25)])
def test_micro_tasks_on_uneven_nodes(tasks: int, units: float) -> None:
    assert virtual.micro_task_units(tasks, UNEVEN) == pytest.approx(units)


def test_uni_tasks_on_uneven_nodes() -> None:
    assert virtual.uni_task_units(UNEVEN) == pytest.approx(1.2)


@pytest.mark.parametrize("tasks", range(1, 9))
def test_no_schedule_is_shorter(tasks: int) -> None:
    slowness = (1.0, 1.3, 2.1)
    least = min(
        max(count * slow for count, slow in zip(counts, slowness, strict=True))
        for counts in itertools.product(range(tasks + 1), repeat=3)
        if sum(counts) == tasks
    )
    counts = virtual.shortest_schedule(tasks, slowness)
    assert sum(counts) == tasks
    assert max(c * slow for c, slow in zip(counts, slowness, strict=True)) == pytest.approx(least)


@pytest.mark.parametrize("tasks", [16, 24, 32, 64])
def test_clocks_of_micro_tasks_add_up(tasks: int) -> None:
    nodes = virtual.VirtualNodes(960, 2.5, dict(enumerate(UNEVEN)), tasks)
    seconds = {task: nodes.clock(task, 960 // tasks) for task in range(tasks)}
    units = virtual.micro_task_units(tasks, UNEVEN)
    assert nodes.length(seconds) == pytest.approx(2.5 * units)


def test_clocks_of_uni_tasks_are_of_their_nodes() -> None:
    nodes = virtual.VirtualNodes(1600, 2.0, {0: 1.0, 5: 1.5})
    assert nodes.clock(0, 100) == pytest.approx(2.0)
    assert nodes.clock(5, 100) == pytest.approx(3.0)
    assert nodes.length({0: 4.0, 5: 3.0}) == 4.0
    with pytest.raises(KeyError):
        nodes.clock(1, 100)


def test_scaling_is_by_two_nodes_every_twenty_seconds() -> None:
    scaled_in, out = virtual.scaling(16, 2), virtual.scaling(2, 16)
    assert [one.second for one in scaled_in] == [20.0 * step for step in range(1, 8)]
    assert scaled_in[0].event == TasksLeaving((14, 15))
    assert scaled_in[-1].event == TasksLeaving((2, 3))
    assert [one.second for one in out] == [20.0 * step for step in range(1, 8)]
    assert out[0].event == TasksJoined((2, 3))
    assert out[-1].event == TasksJoined((14, 15))


def run(
    iterations: int,
    nodes: virtual.VirtualNodes,
    changes: list[virtual.Change],
    tasks: int,
    *policies: Policy,
    quota: virtual.Quota = virtual.all_samples,
) -> virtual.VirtualTime:
    cutting = Cutting({"x": np.zeros(SAMPLES)}, size=464)
    assert cutting.sizes == [SAMPLES // CHUNKS] * CHUNKS
    placed = place(cutting, tasks, OneProcess())
    trainer = Counter(iterations, quota)
    with Training(trainer, placed, policies=policies, clock=nodes.clock) as training:
        passed = virtual.VirtualTime(training, nodes, changes, quota)
        passed.run()
    assert trainer.counts == [SAMPLES] * iterations
    return passed


def test_nodes_leave_in_the_iteration_of_their_second() -> None:
    nodes = virtual.VirtualNodes(SAMPLES, 3.0, dict.fromkeys(range(4), 1.0))
    changes = [
        virtual.Change(20.0, TasksLeaving((3,))),
        virtual.Change(40.0, TasksLeaving((2,))),
    ]
    passed = run(4, nodes, changes, 4, ElasticScaling(), Rebalancing())
    assert passed.tasks == [4, 4, 3, 2]
    assert passed.ends == pytest.approx([12.0, 24.0, 40.0, 64.0])


def test_nodes_join_in_the_iteration_of_their_second() -> None:
    nodes = virtual.VirtualNodes(SAMPLES, 1.0, dict.fromkeys(range(6), 1.0))
    changes = [virtual.Change(10.0, TasksJoined((2, 3, 4, 5)))]
    passed = run(4, nodes, changes, 2, ElasticScaling(), Rebalancing())
    assert passed.tasks == [2, 2, 6, 6]
    assert passed.ends == pytest.approx([8.0, 16.0, 16 + 8 / 3, 16 + 16 / 3])


def test_an_iteration_may_be_a_part_of_the_samples() -> None:
    """As of local SGD: a task takes the same number, however many there are, in a unit."""
    nodes = virtual.VirtualNodes(160, 3.0, dict.fromkeys(range(4), 1.0))
    changes = [virtual.Change(8.0, TasksLeaving((3,))), virtual.Change(13.0, TasksLeaving((2,)))]
    policies = (ElasticScaling(), Rebalancing())
    passed = run(
        *(6, nodes, changes, 4, *policies),
        quota=lambda local, tasks: 10 * local * tasks // SAMPLES,
    )
    assert passed.tasks == [4, 4, 4, 3, 3, 2]
    assert passed.ends == pytest.approx([3.0, 6.0, 9.0, 12.0, 15.0, 18.0])
    assert passed.epochs == pytest.approx([tasks * 10 / SAMPLES for tasks in passed.tasks])


def test_the_policy_balances_uneven_nodes() -> None:
    slowness = {0: 1.0, 1: 1.0, 2: 2.0}
    nodes = virtual.VirtualNodes(SAMPLES, 1.0, slowness)
    passed = run(10, nodes, [], 3, Rebalancing())
    last = passed.ends[-1] - passed.ends[-2]
    assert passed.ends[0] == pytest.approx(2.0 * 16 / 3)
    assert last == pytest.approx(virtual.micro_task_units(CHUNKS, list(slowness.values())))

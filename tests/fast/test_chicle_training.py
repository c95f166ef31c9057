"""Trainer, solvers and policies in one process: what is computed, and which chunks move."""

from __future__ import annotations

import re
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from trepak.tf_plugins.chicle.chunk import Field
from trepak.tf_plugins.chicle.chunk_store import ChunkStore
from trepak.tf_plugins.chicle.cluster import OneProcess
from trepak.tf_plugins.chicle.cutting import Cutting
from trepak.tf_plugins.chicle.elastic_scaling import ElasticScaling
from trepak.tf_plugins.chicle.ledger import LedgerError, Move
from trepak.tf_plugins.chicle.placing import place
from trepak.tf_plugins.chicle.policy import Policy, Situation, TasksJoined, TasksLeaving
from trepak.tf_plugins.chicle.rebalancing import Rebalancing
from trepak.tf_plugins.chicle.shuffling import Shuffling
from trepak.tf_plugins.chicle.straggler_mitigation import StragglerMitigation
from trepak.tf_plugins.chicle.trainer import Iteration, Solver, Trainer
from trepak.tf_plugins.chicle.training import Training

SAMPLES, CHUNKS = 600, 60
VISITS = Field("visits", "int64", is_state=True)


class Counting(Solver):
    """Visits all its samples, and adds them up."""

    def solve(
        self, model: Sequence[np.ndarray], iteration: Iteration
    ) -> tuple[list[np.ndarray], int]:
        total, count = 0.0, round(self.store.samples * iteration.share)
        for chunk in self.store.chunks():
            self.store.state(chunk, "visits")[:] += 1
            total += chunk.view("x").sum()
        return [np.asarray([total, iteration.tasks])], count


class Counter(Trainer):
    """Keeps the sums of each iteration."""

    def __init__(self, iterations: int) -> None:
        self._iterations, self.sums = iterations, []

    def solver(self, task: int, store: ChunkStore) -> Solver:
        return Counting(store)

    def no_update(self) -> list[np.ndarray]:
        return [np.zeros(2)]

    def model(self) -> list[np.ndarray] | None:
        return [np.zeros(1)] if len(self.sums) < self._iterations else None

    def merge(self, updates: list[np.ndarray], iteration: Iteration) -> None:
        self.sums.append(updates[0].tolist())


def training(
    tasks: int, iterations: int, policies: Sequence[Policy] = (), **options: Any
) -> Training:
    """Returns one over chunks of ten samples, which are 0 to 599."""
    x = np.arange(SAMPLES, dtype=float)
    cutting = Cutting({"x": x}, [VISITS], 944)
    assert set(cutting.sizes) == {10}, cutting.sizes
    placed = place(cutting, tasks, OneProcess(), seed=3, checked=True)
    return Training(Counter(iterations), placed, policies=policies, **options)


def check_visits(run: Training, iterations: int) -> None:
    """Each sample was visited once in each iteration, wherever it was."""
    for store in run.tasks.stores.values():
        for chunk in store.chunks():
            assert (chunk.view("visits") == iterations).all()
    assert len(run.trainer.sums) == iterations
    assert {total for total, _ in run.trainer.sums} == {sum(range(SAMPLES))}


def test_chunks_are_assigned_at_random_and_evenly() -> None:
    with training(7, 1) as run:
        owners = run.tasks.ledger.owners
    assert sorted(np.bincount(owners)) == [8] * 3 + [9] * 4
    assert not np.array_equal(owners, np.sort(owners))


@pytest.mark.parametrize("tasks", [1, 2, 5])
def test_all_samples_take_part_in_each_iteration_while_tasks_come_and_go(tasks: int) -> None:
    policies = [ElasticScaling(1), Rebalancing(seed=1), Shuffling(2, seed=1)]
    with training(tasks, 12, policies) as run:

        def after(metrics: Any) -> None:
            run.tasks.check()
            if metrics.iteration == 2:
                run.notify(TasksJoined((10, 11)))
            if metrics.iteration == 6:
                run.notify(TasksLeaving((0, 10)))

        run.run(after)
        check_visits(run, 12)
        assert set(run.tasks.ranks) == {*range(1, tasks), 11} == set(run.tasks.stores)
        # What policies decide beside an iteration happens after it. Each task adds their number.
        counts = [count for _, count in run.trainer.sums]
        assert counts[:4] == [tasks**2] * 4 and counts[4] == (tasks + 2) ** 2
        assert counts[-1] == tasks**2


def test_new_tasks_get_random_chunks_of_every_old_one() -> None:
    with training(4, 3, [ElasticScaling(5)]) as run:
        before = run.tasks.ledger.owners
        run.notify(TasksJoined((4, 5)))
        run.run()
        after = run.tasks.ledger.owners
    assert np.bincount(after).tolist() == [10] * 6
    moved = np.flatnonzero(before != after)
    assert sorted(before[moved].tolist()) == sorted([0, 1, 2, 3] * 5)
    for task in (4, 5):
        assert len(set(before[after == task].tolist())) > 1


def test_chunks_of_a_task_with_notice_go_to_the_others_in_turn() -> None:
    with training(4, 3, [ElasticScaling(5)]) as run:
        run.notify(TasksLeaving((1,)))
        run.run()
        assert run.tasks.ledger.count((0, 2, 3)) == {0: 20, 2: 20, 3: 20}
        assert 1 not in run.tasks.ranks


@pytest.mark.parametrize("slow", [2.6 / 1.2, 1.5, 10.0])
def test_rebalancing_ends_within_a_chunk_of_the_fastest(slow: float) -> None:
    """Iterations last as long as the best assignment of whole chunks lets them."""
    slowness = {0: slow, 1: slow, 2: 1.0, 3: 1.0, 4: 1.0}
    noise = np.random.default_rng(0)

    def clock(task: int, samples: int, seconds: float) -> float:
        return samples * slowness[task] * noise.uniform(0.99, 1.01)

    with training(5, 12, [Rebalancing(seed=2)], clock=clock) as run:
        run.run()
        counts = run.tasks.ledger.count(range(5))
    lasts = max(counts[task] * slowness[task] for task in counts)
    ideal = next(
        time
        for time in sorted({n * s for n in range(CHUNKS + 1) for s in slowness.values()})
        if sum(int(time / s + 1e-9) for s in slowness.values()) >= CHUNKS
    )
    assert ideal <= lasts <= 1.05 * ideal, counts


def test_balance_once_reached_moves_nothing_any_more() -> None:
    owners = []

    def clock(task: int, samples: int, seconds: float) -> float:
        return samples * (3.0 if task == 0 else 1.0)

    with training(4, 15, [Rebalancing()], clock=clock) as run:
        run.run(lambda _: owners.append(run.tasks.ledger.owners.tolist()))
    assert owners[0] != owners[-5] and owners[-5:] == [owners[-1]] * 5


def test_a_straggler_takes_fewer_samples_once_policies_have_decided() -> None:
    def clock(task: int, samples: int, seconds: float) -> float:
        late = task == 0 and run.last is not None and run.last.iteration == 0
        return samples * (4.0 if late else 1.0)

    taken = []
    with training(3, 6, [StragglerMitigation()], clock=clock) as run:
        run.run(lambda metrics: taken.append(metrics.tasks[0].samples))
    assert taken == [200, 200, 200, 50, 200, 200]


class Failing(Policy):
    """Fails in its thread."""

    def decide(self, situation: Situation) -> list[Move]:
        raise ValueError("no idea")


class Confused(Policy):
    """Wants to move what is elsewhere by then, and to where nobody is."""

    def decide(self, situation: Situation) -> list[Move]:
        chunk = situation.ledger.chunks_of(0)[0]
        return [Move(chunk, 0, 1), Move(chunk, 0, 2), Move(chunk, 1, 99), Move(chunk, 1, 2)]


def test_a_policy_that_fails_is_an_error_of_the_training() -> None:
    with (
        training(2, 5, [Failing()]) as run,
        pytest.raises(RuntimeError, match="Failing has failed"),
    ):
        run.run()


def test_decisions_that_do_not_go_together_leave_one_owner_of_each_chunk() -> None:
    with training(3, 4, [Confused()]) as run:
        first = run.tasks.ledger.chunks_of(0)[0]
        run.run(lambda _: run.tasks.check())
        check_visits(run, 4)
        assert first in run.tasks.ledger.chunks_of(2)


def test_a_chunk_that_nobody_has_is_an_error() -> None:
    with training(2, 5) as run:
        run.tasks.ledger.release(3)
        with pytest.raises(LedgerError, match="chunk 3"):
            run.tasks.check()


def test_the_training_of_the_page_runs(tmp_path: Path) -> None:
    page = (Path(__file__).parents[2] / "docs" / "chicle.md").read_text()
    block = next(b for b in re.findall(r"```python\n(.*?)```", page, re.DOTALL) if "Mean" in b)
    script = tmp_path / "mean.py"
    script.write_text(block)
    # In a process of its own: MPI leaves variables behind, and what this one starts would see them.
    done = subprocess.run([sys.executable, script], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert float(done.stdout) == pytest.approx(499.5, rel=1e-5)


class Slow(Policy):
    """Is at work for longer than an iteration."""

    def __init__(self) -> None:
        self.seen: list[Situation] = []

    def decide(self, situation: Situation) -> list[Move]:
        self.seen.append(situation)
        time.sleep(2.5)  # what it is tested for: longer than a scheduler waits
        return []


def test_a_slow_policy_sees_the_newest_situation_with_all_events() -> None:
    slow = Slow()
    began = time.monotonic()
    with training(3, 4, [slow, ElasticScaling()]) as run:
        run.notify(TasksLeaving((0,)))
        run.iterate([np.zeros(1)])
        run.notify(TasksLeaving((1,)))
        for _ in range(3):
            run.iterate([np.zeros(1)])
        run._scheduler._policies[0].decisions(6.0)
        run.iterate([np.zeros(1)])
        assert run.tasks.working == [2]
    assert time.monotonic() - began < 20
    events = [event for situation in slow.seen for event in situation.events]
    assert events == [TasksLeaving((0,)), TasksLeaving((1,))]
    assert len(slow.seen) < 5


class Broken(Counting):
    """Fails in its second iteration."""

    def solve(
        self, model: Sequence[np.ndarray], iteration: Iteration
    ) -> tuple[list[np.ndarray], int]:
        if iteration.number == 1:
            raise ZeroDivisionError("no samples")
        with pytest.raises(ValueError, match="read-only"):
            model[0][:] = 1
        return super().solve(model, iteration)


def test_what_is_wrong_in_a_training_is_said() -> None:
    before = set(threading.enumerate())
    with training(2, 5) as run:
        run._solvers[1] = Broken(run.tasks.stores[1])
        with pytest.raises(ZeroDivisionError, match="no samples"):
            run.run()
        with pytest.raises(ValueError, match="task 7 is not there"):
            run.notify(TasksLeaving((7,)))
        with pytest.raises(ValueError, match="task 1 is there already"):
            run.notify(TasksJoined((1,)))
    with pytest.raises(RuntimeError, match="has ended"):
        run.run()
    with pytest.raises(ValueError, match="at least one task, got 0"):
        training(0, 1)
    assert set(threading.enumerate()) <= before


def test_a_move_that_fails_leaves_chunks_where_they_were() -> None:
    class Elsewhere(OneProcess):
        def move(self, outgoing: Any, expected: Any) -> Any:
            raise OSError("no way")

    with training(2, 5) as run:
        tasks = run.tasks
        tasks.ranks[1] = 1  # of another rank, whose store this process does not have
        del tasks.stores[1]
        mine = tasks.stores[0].ids
        with pytest.raises(OSError, match="no way"):
            tasks.move([Move(chunk, 0, 1) for chunk in mine[:3]], Elsewhere())
        assert tasks.stores[0].ids == mine == tasks.ledger.chunks_of(0)

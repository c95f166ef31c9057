"""Batches from chunks: each sample once in a pass, wherever its chunk goes between iterations."""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from trepak.tf_plugins.chicle import chunked_iterations
from trepak.tf_plugins.chicle.chunk_store import ChunkStore
from trepak.tf_plugins.chicle.chunked_iterations import SECONDS, ChunkedIterations, affordable
from trepak.tf_plugins.chicle.cluster import OneProcess
from trepak.tf_plugins.chicle.cutting import Cutting
from trepak.tf_plugins.chicle.drawing import DRAWN
from trepak.tf_plugins.chicle.ledger import Move
from trepak.tf_plugins.chicle.moving import Tasks
from trepak.tf_plugins.chicle.placing import place
from trepak.tf_plugins.chicle.policy import Policy, Share, Situation
from trepak.tf_plugins.chicle.task_batches import TaskBatches

SAMPLES = 600


def placed(tasks: int, chunk_bytes: int = 1000) -> Tasks:
    cutting = Cutting({"x": np.arange(SAMPLES)}, [DRAWN], chunk_bytes)
    return place(cutting, tasks, OneProcess(), checked=True)


def batches_of(store: ChunkStore, seed: int = 0) -> TaskBatches:
    return TaskBatches(store, ["x"], np.random.default_rng(seed))


@pytest.mark.parametrize("seed", range(8))
def test_each_sample_comes_once_in_a_pass_while_chunks_move_at_random(seed: int) -> None:
    rng = np.random.default_rng(seed)
    count, h, steps = int(rng.integers(2, 5)), int(rng.integers(1, 6)), int(rng.integers(12, 30))
    tasks = placed(count)
    everyone = {task: batches_of(store, task) for task, store in tasks.stores.items()}
    moved = 0
    for number in range(4):
        seen: list[int] = []
        left = steps
        while left:
            for task in everyone.values():
                task.begin_iteration(0 if seen else steps)
                task.extend(h)
            while any(task.batches_left for task in everyone.values()):
                drawn = [task.take()[0] for task in everyone.values()]
                assert all(len(batch) for batch in drawn), "a batch is empty"
                seen += np.concatenate(drawn).tolist()
                left -= 1
            for task in everyone.values():
                task.end_iteration()
            owners, greedy = tasks.ledger.owners, int(rng.integers(count))
            wanted = [
                Move(int(chunk), int(owners[chunk]), greedy)
                for chunk in rng.permutation(len(owners))
                if owners[chunk] != greedy and rng.random() < 0.9
            ]
            kept = {t: (b.left if left else b.store.samples) for t, b in everyone.items()}
            can_give = {task: some - (left or steps) for task, some in kept.items()}
            moves = affordable(wanted, can_give, tasks.sizes)
            moved += len(moves)
            tasks.move(moves, OneProcess())
        assert sorted(seen) == list(range(SAMPLES)), number
    assert moved > 10


def test_batches_are_in_proportion_to_what_a_task_has() -> None:
    tasks = placed(2)
    few, many = tasks.stores.values()
    while few.samples * 2 > many.samples:
        many.add(few.take(few.ids[0]))
    steps = 20
    for store in (few, many):
        batches = batches_of(store)
        batches.begin_iteration(new_pass_of=steps)
        batches.extend(steps)
        sizes = [len(batches.take()[0]) for _ in range(steps)]
        assert set(sizes) <= {store.samples // steps, math.ceil(store.samples / steps)}
        assert sum(sizes) == batches.taken == store.samples
        batches.end_iteration()


def test_no_batch_is_drawn_before_its_iteration() -> None:
    (store,) = placed(1).stores.values()
    batches = batches_of(store)
    batches.begin_iteration(new_pass_of=10)
    batches.extend(3)
    for left in (3, 2, 1):
        assert batches.batches_left == left
        batches.take()
    assert (batches.steps_left, batches.left) == (7, SAMPLES * 7 // 10)
    with pytest.raises(RuntimeError, match="chunks move before the next one"):
        batches.take()
    batches.end_iteration()
    store.take(store.ids[0])  # is the scheduler's again
    with pytest.raises(tf.errors.FailedPreconditionError):
        batches._draws.draw(1)


def test_an_iteration_can_go_on() -> None:
    (store,) = placed(1).stores.values()
    batches = batches_of(store)
    batches.begin_iteration(new_pass_of=4)
    batches.extend(2)
    seen = [batches.take()[0]]
    batches.extend(2)  # from here
    seen += [batches.take()[0] for _ in range(2)]
    assert batches.batches_left == 0
    batches.extend(9)  # no more than the pass has
    seen.append(batches.take()[0])
    assert (batches.batches_left, batches.steps_left) == (0, 0)
    assert sorted(np.concatenate(seen)) == list(range(SAMPLES))
    batches.end_iteration()


def test_a_pass_that_was_left_is_begun_anew() -> None:
    (store,) = placed(1).stores.values()
    batches = batches_of(store)
    batches.begin_iteration(new_pass_of=6)
    batches.extend(6)
    batches.take()
    batches.stop()
    batches.begin_iteration(new_pass_of=3)
    batches.extend(3)
    assert sorted(np.concatenate([batches.take()[0] for _ in range(3)])) == list(range(SAMPLES))
    batches.stop()


def test_a_task_with_too_few_samples_is_an_error() -> None:
    (store,) = placed(1).stores.values()
    with pytest.raises(RuntimeError, match=f"{SAMPLES} samples for the {SAMPLES + 1} steps"):
        batches_of(store).begin_iteration(new_pass_of=SAMPLES + 1)
    store.take(store.ids[0])  # is not the task's


def test_moves_that_a_task_cannot_afford_are_left_out() -> None:
    sizes = [5, 5, 5, 5]
    moves = [Move(0, 0, 1), Move(1, 0, 1), Move(1, 1, 2), Move(2, 1, 0)]
    assert affordable(moves, {0: 9, 1: 7}, sizes) == [moves[0], moves[3]]
    assert affordable(moves, {0: 10, 1: 10}, sizes) == moves
    assert affordable(moves, {0: 0, 1: 10}, sizes, leaving=[0]) == moves
    assert affordable(moves, {}, sizes) == []


class Sharing(Policy):
    """Decides what chunked training can't do."""

    def decide(self, situation: Situation) -> list[Any]:
        return [Share(0, 0.5)]


class Failing(Policy):
    """Fails."""

    def decide(self, situation: Situation) -> list[Any]:
        raise ZeroDivisionError("no idea")


@pytest.mark.parametrize(
    ("policy", "error", "match"),
    [(Sharing(), ValueError, "StragglerMitigation"), (Failing(), RuntimeError, "no idea")],
    ids=["share", "failure"],
)
def test_what_a_policy_does_wrong_is_an_error(
    policy: Policy, error: type[Exception], match: str
) -> None:
    iterations = ChunkedIterations(placed(1), OneProcess(), [policy], ["x"], 0)
    iterations.begin_pass(1)
    iterations.batches.extend(1)
    iterations.batches.take()
    with pytest.raises(error, match=match):
        iterations.end(1, 1.0, 1, 2)
    iterations.scheduler.close()


def test_an_iteration_is_as_long_as_the_averages_of_the_last_one_say(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Not as those that it was to have: an epoch may have ended it before."""
    clock = [0.0]
    own_time = SimpleNamespace(perf_counter=lambda: clock[0])
    monkeypatch.setattr(chunked_iterations, "time", own_time)
    iterations = ChunkedIterations(placed(1), OneProcess(), [], ["x"], 0)
    iterations.begin_pass(1)
    iterations.averages = 16
    for averages, wanted in ((4, 2), (1, 1), (20, 10)):
        clock[0] += 2 * SECONDS
        iterations.end(1, 1.0, averages, 2)
        assert iterations.averages == wanted
        iterations.begin()
    iterations.scheduler.close()

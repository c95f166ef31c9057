"""Elastic jobs of several trainings: ranks that join late take the results of those before."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from chicle_network import Member, Network, Ranks
from test_chicle_elastic import TOL, maker, primal, undisturbed

from trepak import chicle
from trepak.glm import LinearSVC
from trepak.horovod_ext.chunk_mover import Arrived
from trepak.tf_plugins.chicle.chunk import Chunk, Field
from trepak.tf_plugins.chicle.cluster import Arrays, Cluster, OneProcess, packed, unpacked
from trepak.tf_plugins.chicle.cocoa import CocoaTrainer
from trepak.tf_plugins.chicle.cutting import Cutting
from trepak.tf_plugins.chicle.elastic_training import ElasticTraining
from trepak.tf_plugins.chicle.glm_model import Given
from trepak.tf_plugins.chicle.glm_trainer import GlmTrainer
from trepak.tf_plugins.chicle.job_trainings import JobTrainings
from trepak.tf_plugins.chicle.trainer import Solver, Trainer

COSTS = (0.02, 0.005, 0.01)
BEST = [undisturbed(c) for c in COSTS]


class Concluding(CocoaTrainer):
    """Computes w anew in the end, as linear models do: the last exchange of a training."""

    def conclude(self, solvers: Sequence[Solver], cluster: Cluster) -> None:
        self.evaluate_anew(solvers, cluster)


class Job:
    """A network whose ranks have a script of several trainings."""

    def __init__(
        self, seed: int, ranks: int, commit_seconds: float = 0.0, trainings: int = len(COSTS)
    ) -> None:
        self.network, self._trainings = Network(seed, ranks), trainings
        self._make = maker(self.network, seed, commit_seconds, costs=COSTS, kind=Concluding)

    def add(self, after: Callable[..., None] | None = None, pause: float = 0.0) -> Member:
        """Starts a rank, whose script takes its time before each training."""

        def make(member: Member) -> ElasticTraining:
            time.sleep(pause)
            return self._make(member)

        return self.network.add(make, after, self._trainings)

    def check(self) -> list[Member]:
        """Returns the ranks that have come to the end; they have the same models, the optima."""
        outcomes = self.network.wait()
        for outcome in outcomes:
            if isinstance(outcome, tuple) and outcome[0] == "failed":
                raise outcome[1]
        done = [one for one in self.network.members if not isinstance(one.outcome, tuple)]
        assert done, outcomes
        for number in range(self._trainings):
            trainers: Any = [one.trained[number].trainer for one in done]
            for trainer in trainers:
                np.testing.assert_array_equal(trainer.weights, trainers[0].weights)
                told = trainer.iterations, trainer.gaps[-1]
                assert told == (trainers[0].iterations, trainers[0].gaps[-1])
                assert 0 <= trainer.gaps[-1] <= TOL
                found = primal(trainer.weights, COSTS[number])
                np.testing.assert_allclose(found, BEST[number], rtol=2 * TOL)
        return done


def behind(rank: int, number: int, others: int) -> str:
    return (
        f"rank {rank} comes to training {number} of the script, and the others are at training "
        f"{others}: it takes the results of those before."
    )


def test_ranks_join_in_the_second_and_in_the_third_training() -> None:
    job = Job(1, 2)
    late: dict[int, Member] = {}

    def after(cluster: Ranks, metrics: Any) -> None:
        number = len(cluster.member.trained)
        if cluster.rank == 0 and metrics.iteration == 3 and number > 0 and number not in late:
            late[number] = job.add()

    for _ in range(2):
        job.add(after)
    assert len(job.check()) == 4
    for number, member in late.items():
        worked = [bool(one.tasks.stores) for one in member.trained]
        assert worked == [at >= number for at in range(3)]
        first = job.network.members[0].trained
        assert [one.iteration for one in member.trained] == [one.iteration for one in first]
    told = [line for line in job.network.lines if "of the script" in line]
    assert told == [behind(2, 1, 2), behind(3, 1, 3)]


def test_a_training_that_reached_some_ranks_only_is_taken_by_the_others() -> None:
    """Rank 2 dies in the last sum of the first training, which rank 0 gets, and rank 1 doesn't."""
    network = Network(2, 3)
    make = maker(network, 2, commit_seconds=1e9, costs=COSTS, max_iter=4, kind=Concluding)

    class ServesRank0:
        def integers(self, *_: int) -> int:
            return 1

        def permutation(self, ranks: list[int]) -> np.ndarray:
            return np.asarray(sorted(ranks))

    network.rng = ServesRank0()  # type: ignore[assignment]

    def after(cluster: Ranks, metrics: Any) -> None:
        if cluster.rank == 2 and metrics.iteration == 3:
            cluster.wait_for_others()
            cluster.member.exchanges_left = 0

    for _ in range(3):
        network.add(make, after, trainings=2)
    assert network.wait()[2] == ("died",)
    both: Any = [member.trained for member in network.members[:2]]
    for mine, theirs in zip(*both, strict=True):
        np.testing.assert_array_equal(mine.trainer.weights, theirs.trainer.weights)
        assert mine.trainer.gaps == theirs.trainer.gaps and mine.iteration == theirs.iteration == 4
    assert [[bool(one.tasks.stores) for one in trained] for trained in both] == [
        [True, True],
        [False, True],
    ]
    assert network.lines == [behind(1, 1, 2)]


@pytest.mark.parametrize("victim", [0, 1])
@pytest.mark.parametrize("exchanges", [*range(0, 14, 2)])
def test_a_rank_dies_around_the_border_between_two_trainings(victim: int, exchanges: int) -> None:
    job = Job(exchanges, 3, trainings=2)

    def after(cluster: Ranks, metrics: Any) -> None:
        member, is_last = cluster.member, metrics.values["gap"] <= TOL
        if member.host == f"host{victim}" and is_last and member.exchanges_left is None:
            member.exchanges_left = exchanges

    for _ in range(3):
        job.add(after)
    assert len(job.check()) == 2
    assert job.network.members[victim].outcome == ("died",)


def test_the_ranks_that_were_there_die_and_the_late_one_keeps_what_they_had_ended() -> None:
    job = Job(4, 2)
    late: list[Member] = []

    def after(cluster: Ranks, metrics: Any) -> None:
        if len(cluster.member.trained) == 1:
            if cluster.size == 3:
                cluster.member.exchanges_left = 0
            elif cluster.rank == 0 and metrics.iteration == 3 and not late:
                late.append(job.add())

    for _ in range(2):
        job.add(after)
    assert job.check() == late
    first: Any = [member.trained[0].trainer for member in job.network.members]
    assert all(np.array_equal(one.weights, first[0].weights) for one in first)
    assert not late[0].trained[0].tasks.stores


def linear(c: float) -> tuple[GlmTrainer, ElasticTraining]:
    x = np.random.default_rng(0).normal(size=(60, 3))
    model = LinearSVC(c, random_state=0)
    given = Given(model, chicle.Arrays(x, (x[:, 0] > 0).astype(int)), None, None)
    trainer = GlmTrainer(model, model._task(given), 0)
    return trainer, ElasticTraining(trainer, trainer.cut, Member(Network(0, 1), "host"))


def test_a_linear_model_that_is_over_is_taken_only_where_the_same_was_asked_for() -> None:
    trained, first = linear(1.0)
    result = unpacked(packed(first.result(first.round(OneProcess()))))
    taken, second = linear(1.0)
    assert second.take(result).tasks.stores == {}
    np.testing.assert_array_equal(taken.cocoa.weights, trained.cocoa.weights)
    assert taken.cocoa.gaps == trained.cocoa.gaps and taken.cocoa.has_converged
    assert taken.cocoa.iterations == trained.cocoa.iterations > 0
    with pytest.raises(ValueError, match=r"for class = LinearSVC.* C = 2\.0.* fit .* C = 1\.0"):
        linear(2.0)[1].take(result)


SCHEDULES = int(os.environ.get("CHICLE_SCHEDULES", "12")) // 2


@pytest.mark.parametrize("seed", range(SCHEDULES))
def test_any_schedule(seed: int) -> None:
    """Joins, notices and kills in any training, some while others wait for a late rank."""
    rng = np.random.default_rng(seed)
    job = Job(seed, 3, float(rng.choice([0.0, 1e9])))
    network = job.network
    moments = [sorted(int(one) for one in rng.integers(1, 15, 2)) for _ in COSTS]

    def after(cluster: Ranks, metrics: Any) -> None:
        if cluster.rank != 0:
            return
        left = moments[len(cluster.member.trained)]
        while left and metrics.iteration >= left[0]:
            left.pop(0)
            act()

    def act() -> None:
        pause = float(rng.choice([0.0, 0.2]))
        kinds = ["join", "join", "notice", "kill"]
        network.disturb(rng, kinds, lambda: job.add(after, pause=pause))

    for _ in range(3):
        job.add(after)
    job.check()


class _Ahead(OneProcess):
    """The other rank, rank 0, is at its third training, and has these results."""

    size, rank = 2, 1

    def __init__(self, results: Arrays) -> None:
        self._results = results
        self.arrived: list[Arrived] = []

    def gather(self, fact: Any, about: str) -> list[Any]:
        return [2, fact]

    def gather_arrays(self, arrays: Arrays, about: str) -> list[Arrays]:
        assert arrays == {}
        return [self._results, arrays]

    def take_arrived(self) -> list[Arrived]:
        arrived, self.arrived = self.arrived, []
        return arrived


class _Nothing(Trainer):
    """Has nothing to train."""

    def solver(self, task: int, store: Any) -> Any:
        raise AssertionError

    def no_update(self) -> list[np.ndarray]:
        return []

    def model(self) -> None:
        return None

    def merge(self, updates: Any, iteration: Any) -> None:
        raise AssertionError

    def save(self) -> Arrays:
        return {}

    def load(self, saved: Arrays) -> None:
        assert saved == {}


class _Other(_Nothing):
    """Another trainer."""


def nothing(trainer: Trainer) -> ElasticTraining:
    def cut(part: int, parts: int) -> Cutting:
        raise AssertionError("nothing is read for a training that is over")

    return ElasticTraining(trainer, cut, Member(Network(0, 1), "host"))


def test_a_training_that_is_over_is_of_the_same_trainer_and_ended_well() -> None:
    iterations = {"result: iteration": np.asarray(7), "result: trainer": np.asarray("_Nothing")}
    cluster = _Ahead({"0": np.frombuffer(packed(iterations), np.uint8)})
    job = JobTrainings(print)
    assert job.round(job.begin(), nothing(_Nothing()), cluster).iteration == 7
    with pytest.raises(ValueError, match="training 2 of the script ended with an error on the"):
        job.round(job.begin(), nothing(_Nothing()), cluster)
    other = JobTrainings(print)
    with pytest.raises(ValueError, match="train a _Other, and joins .* was of a _Nothing"):
        other.round(other.begin(), nothing(_Other()), cluster)


def test_what_had_arrived_for_a_training_that_is_over_is_dropped() -> None:
    chunk = Chunk.make(0, 1, [Field("x", "float64")])
    chunk._drop.detach()  # who takes it drops it
    result = {"result: iteration": np.asarray(7), "result: trainer": np.asarray("_Nothing")}
    cluster = _Ahead({"0": np.frombuffer(packed(result), np.uint8)})
    cluster.arrived = [Arrived(0, 0, chunk.number)]
    job = JobTrainings(print)
    chunk.check()
    job.round(job.begin(), nothing(_Nothing()), cluster)
    with pytest.raises(tf.errors.NotFoundError):
        chunk.check()

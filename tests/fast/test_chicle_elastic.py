"""Elastic trainings on a network of threads: ranks join, get notice and die as schedules say."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from chicle_network import Member, Network

from trepak.tf_plugins.chicle.cocoa import CocoaTrainer, Problem, Problems
from trepak.tf_plugins.chicle.cutting import Cutting
from trepak.tf_plugins.chicle.elastic_scaling import ElasticScaling
from trepak.tf_plugins.chicle.elastic_training import ElasticTraining
from trepak.tf_plugins.chicle.ledger import Ledger, LedgerError
from trepak.tf_plugins.chicle.policy import Situation, TasksJoined
from trepak.tf_plugins.chicle.rebalancing import Rebalancing
from trepak.tf_plugins.chicle.roll_call import Present, call_roll
from trepak.tf_plugins.chicle.supply import Supply

SAMPLES, CHUNK_BYTES = 600, 2048
C, TOL = 0.02, 1e-5


def problems(c: float) -> Problems:
    return Problems((Problem("hinge", c, positive=1.0),), 6)


def samples() -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(5)
    x = rng.normal(size=(SAMPLES, 6))
    return x, (x @ rng.normal(size=6) + rng.normal(size=SAMPLES) > 0).astype(float)


X, Y = samples()


def cut(part: int, parts: int) -> Cutting:
    mine = slice(SAMPLES * part // parts, SAMPLES * (part + 1) // parts)
    fields = {"x": X[mine], "y": Y[mine], "weight": np.ones(len(Y[mine]))}
    return Cutting(fields, problems(C).state(), CHUNK_BYTES)


def maker(
    network: Network,
    seed: int,
    commit_seconds: float = 0.0,
    replicas: bool = False,
    costs: Sequence[float] = (C,),
    max_iter: int = 3000,
    kind: type[CocoaTrainer] = CocoaTrainer,
) -> Any:
    """Returns what makes a rank's training, of the C of its number."""

    def make(member: Member) -> ElasticTraining:
        trainer = kind(problems(costs[len(member.trained)]), TOL, max_iter, seed)
        policies = (ElasticScaling(seed), Rebalancing(seed=seed))
        return ElasticTraining(
            trainer,
            cut,
            member,
            policies,
            seed + 100 * len(network.members),  # rank 0's counts
            commit_seconds,
            replicas,
            clock=lambda task, samples, seconds: samples * 1e-3,
            say=network.lines.append,
        )

    return make


def primal(weights: np.ndarray, c: float = C) -> float:
    margins = np.where(Y == 1, 1, -1) * (X @ weights[0])
    return float(0.5 * weights[0] @ weights[0] + c * np.maximum(0, 1 - margins).sum())


def undisturbed(c: float) -> float:
    network = Network(0, 1)
    network.add(maker(network, 0, costs=(c,)))
    (training,) = network.wait()
    return primal(training.trainer.weights, c)


BEST = undisturbed(C)


def check(network: Network) -> list[Any]:
    """All ranks that have not left have the optimum, and no chunk was left behind."""
    outcomes = network.wait()
    failed = [one[1] for one in outcomes if isinstance(one, tuple) and one[0] == "failed"]
    if failed:
        raise failed[0]
    done = [one for one in outcomes if not isinstance(one, tuple)]
    assert done
    for training in done:
        assert 0 <= training.trainer.gaps[-1] <= TOL
        np.testing.assert_allclose(primal(training.trainer.weights), BEST, rtol=2 * TOL)
        np.testing.assert_array_equal(training.trainer.weights, done[0].trainer.weights)
        assert not training.tasks.ledger.unowned()
    held = [chunk for one in done for store in one.tasks.stores.values() for chunk in store.ids]
    assert sorted(held) == list(range(len(done[0].tasks.sizes)))
    duals = _duals(done)
    np.testing.assert_allclose(duals @ X, done[0].trainer.weights[0], rtol=1e-9, atol=1e-9)
    return outcomes


def _duals(done: list[Any]) -> np.ndarray:
    """Returns the duals in the order of the samples, found by their features."""
    places = {row.tobytes(): place for place, row in enumerate(X)}
    duals = np.full(SAMPLES, np.nan)
    for training in done:
        for store in training.tasks.stores.values():
            for chunk in store.chunks():
                for row, dual in zip(chunk.view("x"), chunk.view("alpha"), strict=True):
                    assert np.isnan(duals[places[row.tobytes()]]), "a sample is counted twice"
                    duals[places[row.tobytes()]] = dual[0]
    assert not np.isnan(duals).any(), "a sample is lost"
    return duals


def test_a_rank_joins_and_gets_its_share() -> None:
    network = Network(1, 2)
    make = maker(network, 1)
    counts: list[dict[int, int]] = []

    def after(cluster: Any, metrics: Any) -> None:
        if cluster.rank == 0 and metrics.iteration == 3 and len(network.members) == 2:
            network.add(make)
        if cluster.rank == 0:
            counts.append({task: done.chunks for task, done in metrics.tasks.items()})

    for _ in range(2):
        network.add(make, after)
    check(network)
    assert len(counts[-1]) == 3
    assert max(counts[-1].values()) - min(counts[-1].values()) <= 2, counts[-1]
    assert re.fullmatch(
        r"iteration \d+: host2 has joined as rank 2 of 3, and has \d+ chunks of the others now\.",
        network.lines[0],
    ), network.lines


@pytest.mark.parametrize("who", [0, 1])
def test_a_rank_with_notice_leaves_without_chunks(who: int) -> None:
    network = Network(2, 3)
    make = maker(network, 2)

    def after(cluster: Any, metrics: Any) -> None:
        if cluster.rank == 0 and metrics.iteration == 3:
            network.members[who].why = "SIGTERM"

    for _ in range(3):
        network.add(make, after)
    assert check(network)[who] == ("left", 0, "it was withdrawn")
    assert re.search(
        rf"rank {who} is to leave \(SIGTERM on host{who}\): its \d+ chunks go to the others\.",
        "\n".join(network.lines),
    ), network.lines


def test_a_host_that_is_no_longer_listed_leaves_without_chunks() -> None:
    network = Network(3, 3)
    make = maker(network, 3)

    def after(cluster: Any, metrics: Any) -> None:
        if (
            cluster.rank == 0
            and metrics.iteration == 3
            and network.members[1].host in network.hosts
        ):
            network.remove(network.members[1])

    for _ in range(3):
        network.add(make, after)
    assert check(network)[1] == ("left", 0, "it was withdrawn")
    assert "rank 1 is to leave (host1 is no longer listed)" in network.lines[0]


@pytest.mark.parametrize("victim", [0, 2])
@pytest.mark.parametrize("exchanges", range(8))
def test_a_rank_dies_and_all_go_back(victim: int, exchanges: int) -> None:
    network = Network(exchanges, 3)
    make = maker(network, 4)

    def after(cluster: Any, metrics: Any) -> None:
        if cluster.rank == 0 and metrics.iteration == 5:
            member = network.members[victim]
            if member.exchanges_left is None:
                member.exchanges_left = exchanges

    for _ in range(3):
        network.add(make, after)
    outcomes = check(network)
    assert outcomes[victim] == ("died",)
    line = next(one for one in network.lines if "lost" in one)
    assert re.match(
        rf"host{victim} was lost in iteration \d+: 2 ranks go on from iteration \d+; \d+ chunks "
        r"were read again",
        line,
    ), line


@pytest.mark.parametrize("replicas", [False, True])
def test_lost_chunks_are_read_again_or_are_copies(
    monkeypatch: pytest.MonkeyPatch, replicas: bool
) -> None:
    reads: list[tuple[int, int]] = []
    plain = Supply.part

    def noted(self: Supply, part: int, parts: int) -> Cutting:
        reads.append((part, parts))
        return plain(self, part, parts)

    monkeypatch.setattr(Supply, "part", noted)
    network = Network(7, 3)
    make = maker(network, 7, replicas=replicas)

    def after(cluster: Any, metrics: Any) -> None:
        if cluster.rank == 0 and metrics.iteration == 5 and not network.lines:
            network.members[1].exchanges_left = 4

    for _ in range(3):
        network.add(make, after)
    assert check(network)[1] == ("died",)
    began = [(0, 3), (1, 3), (2, 3)]
    assert sorted(reads[:3]) == began
    assert sorted(reads[3:]) == ([] if replicas else began)
    how = "taken from copies" if replicas else "read again"
    assert re.search(rf"\d+ chunks were {how}\.", network.lines[0]), network.lines


@pytest.mark.parametrize("change", ["join", "leave", "death"])
@pytest.mark.parametrize("victim", [0, 1])
def test_a_rank_that_dies_soon_after_a_change_takes_no_state_with_it(
    victim: int, change: str
) -> None:
    """No commit is due between the two."""
    network = Network(7, 3)
    make = maker(network, 7, commit_seconds=1e9)
    ranks = {"join": 4, "leave": 2, "death": 2}[change]
    changed_at: list[int] = []

    def after(cluster: Any, metrics: Any) -> None:
        if cluster.rank != 0:
            return
        if metrics.iteration == 3 and not changed_at:
            changed_at.append(3)
            if change == "join":
                network.add(make, after)
            elif change == "leave":
                network.members[2].why = "SIGTERM"
            else:
                network.members[2].exchanges_left = 1
        member = network.members[victim]
        if changed_at and cluster.size == ranks and member.exchanges_left is None:
            member.exchanges_left = 3

    for _ in range(3):
        network.add(make, after)
    assert check(network)[victim] == ("died",)
    losses = [line for line in network.lines if f"host{victim} was lost" in line]
    assert len(losses) == 1 and "without their state" not in losses[0], network.lines


def test_all_ranks_with_notice_is_an_error() -> None:
    network = Network(6, 2)
    make = maker(network, 6)

    def after(cluster: Any, metrics: Any) -> None:
        if metrics.iteration == 3:
            network.members[cluster.rank].why = "SIGTERM"

    for _ in range(2):
        network.add(make, after)
    with pytest.raises(SystemExit, match="143"):
        check(network)
    assert network.lines[-1] == (
        "all ranks are to leave the job (SIGTERM on host0, SIGTERM on host1). It ends."
    )


SCHEDULES = int(os.environ.get("CHICLE_SCHEDULES", "12"))


@pytest.mark.parametrize("seed", range(SCHEDULES))
def test_any_schedule(seed: int) -> None:
    """Joins, notices, removals and kills, several of them, some while others are under way."""
    rng = np.random.default_rng(seed)
    network = Network(seed, 4)
    make = maker(network, seed, float(rng.choice([0.0, 0.02, 1e9])), replicas=seed % 2 == 1)
    moments = sorted(int(one) for one in rng.integers(1, 40, 5))

    def after(cluster: Any, metrics: Any) -> None:
        if cluster.rank != 0:
            return
        while moments and metrics.iteration >= moments[0]:
            moments.pop(0)
            act()

    def act() -> None:
        kinds = ["join", "notice", "remove", "kill"]
        network.disturb(rng, kinds, lambda: network.add(make, after))

    for _ in range(4):
        network.add(make, after)
    check(network)


def test_the_roll() -> None:
    both = call_roll([Present(0, 2, [0, 1], [3, 5]), Present(1, 2, [1, 3], [5, 4])], 4)
    assert (both.version, both.giver, both.owners.tolist()) == (5, 0, [0, 0, -1, 1])
    kept = call_roll(
        [Present(0, 2, [0], [3, 5], {"3": [1]}), Present(None, 0, [], [], is_leaving=True)], 2
    )
    assert (kept.version, kept.ranks, kept.new) == (3, {0: 0, 2: 1}, [2])
    assert (kept.leaving, kept.next_task) == ([2], 3)
    assert call_roll([Present(None, 0, [], [])] * 2, 0).version is None
    with pytest.raises(LedgerError, match="no state of the same iteration"):
        call_roll([Present(0, 2, [0], [3]), Present(1, 2, [1], [4])], 2)


def test_a_new_task_does_not_take_another_s_last_chunk() -> None:
    situation = Situation(
        Ledger.of([0, 1]), (0, 1, 2), frozenset(), (TasksJoined((2,)),), None, [1, 1]
    )
    assert ElasticScaling(0).decide(situation) == []

"""Rows of embeddings in two tiers: several stores play the ranks; see embedding_job.py."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from embedding_job import PLANS, RANKS, Feature, Job, Table, column_wise, row_wise, table_wise

from trepak.ops import loader
from trepak.tf_plugins.callbacks.embedding_placement import EmbeddingPlacement
from trepak.tf_plugins.layers.embedding_storage import storage

MASK = (1 << 64) - 1


@dataclass
class Rare(Table):
    """A table with the options that rows have."""

    hashed: bool = False
    min_count: int = 0
    row_limit: int = 0


@pytest.fixture
def make_job() -> Iterator[Any]:
    jobs = []

    def make(tables: list[Any], plan: Any = row_wise, **options: Any) -> Job:
        jobs.append(Job(tables, plan, **options))
        return jobs[-1]

    yield make
    for job in jobs:
        job.close()


def splitmix64(number: int) -> int:
    number = (number + 0x9E3779B97F4A7C15) & MASK
    number = ((number ^ number >> 30) * 0xBF58476D1CE4E5B9) & MASK
    number = ((number ^ number >> 27) * 0x94D049BB133111EB) & MASK
    return number ^ number >> 31


def ids_of(ids: Any, table: int = 0) -> Feature:
    """Returns a feature whose samples have one id each."""
    flat = tf.constant(np.asarray(ids, np.int64))
    splits = tf.range(len(ids) + 1, dtype=tf.int64)
    return Feature(table, flat, splits, tf.zeros([0]), "sum", False)


TABLES = [Table("a", 200, 5, {"name": "adagrad"}), Table("b", 31, 6, {"name": "adam"})]


def skewed(random: np.random.Generator, count: int, rows: int) -> Any:
    return np.minimum(random.geometric(0.03, count) - 1, rows - 1)


def train(job: Job, steps: int, between: Any = lambda step: None, seed: int = 0) -> list[Any]:
    """Trains both tables; returns all that anybody could see of them."""
    random = np.random.default_rng(seed)
    for number, table in enumerate(job.tables):
        shape = table.vocabulary, table.dim
        job.fill(number, np.linspace(-1, 1, int(np.prod(shape)), dtype="f4").reshape(shape))
    seen = []
    for step in range(1, steps + 1):
        features = [
            [ids_of(skewed(random, 12, table.vocabulary), n) for n, table in enumerate(job.tables)]
            for _ in range(RANKS)
        ]
        outputs = job.forward(features)
        job.backward([[one * 0.3 + step for one in mine] for mine in outputs], [0.1, 0.05], step)
        between(step)
        seen.append(outputs)
    states = [
        job.ops.trepak_embedding_read(
            number, 0, cut["rows"], with_slots=True, store=job.stores[cut["rank"]]
        )
        for number, cut in enumerate(job.shards)
    ]
    return [one.numpy() for one in [*tf.nest.flatten(seen), *states]]


def on_all(job: Job, function: str, **arguments: Any) -> list[Any]:
    return [loader.call(function, store=store, **arguments) for store in job.stores]


@pytest.mark.parametrize("plan", PLANS)
@pytest.mark.parametrize("fast_bytes", [0, 700, 1 << 20])
def test_training_is_the_same_bit_for_bit(
    plan: Any, fast_bytes: int, make_job: Any, tmp_path: Path
) -> None:
    job = make_job(TABLES, plan, folder=str(tmp_path), fast_bytes=fast_bytes)
    policies = itertools.cycle(["lru", "lfu", "score"])

    def move(step: int) -> None:
        if step % 7 == 1:
            on_all(job, "track_embeddings", policy=next(policies))
        elif step % 3 == 0:
            on_all(job, "place_embeddings", seed=step)
        elif step % 5 == 0:
            on_all(job, "place_embeddings", seed=None)
        else:
            on_all(job, "replace_embeddings")

    expected = train(make_job(TABLES, plan), 30)
    for got, wanted in zip(train(job, 30, move), expected, strict=True):
        assert got.tobytes() == wanted.tobytes()
    assert not list(tmp_path.iterdir())  # files have no names
    for counted in on_all(job, "embedding_statistics"):
        assert counted["fast_bytes"] <= fast_bytes
        assert (counted["evictions"] > 20) == (fast_bytes == 700 and counted["bytes"] > 0)
        assert counted["moves"] >= 2 * counted["evictions"] - 700 / 20
        if fast_bytes == 1 << 20:
            assert counted["fast_bytes"] == counted["bytes"]
            assert counted["fast_rows"] == counted["rows_looked_up"]


def test_hot_rows_are_hit_as_often_as_expected_and_more_often_than_random_ones(
    make_job: Any, tmp_path: Path
) -> None:
    shares = {}
    for kind, seed in (("hot", None), ("random", 7)):
        job = make_job(TABLES, row_wise, folder=str(tmp_path), fast_bytes=1500)
        on_all(job, "track_embeddings", policy="lfu")
        train(job, 20)
        placed = on_all(job, "place_embeddings", seed=seed)
        before = on_all(job, "embedding_statistics")
        train(job, 20)
        after = on_all(job, "embedding_statistics")
        for one, first, last in zip(placed, before, after, strict=True):
            looked_up = last["rows_looked_up"] - first["rows_looked_up"]
            measured = (last["fast_rows"] - first["fast_rows"]) / looked_up
            assert measured == pytest.approx(one["fast_scores"] / one["scores"])
            assert 1400 < last["fast_bytes"] <= 1500
            assert 0 < one["fast_rows"] < one["rows"]
        shares[kind] = [one["fast_scores"] / one["scores"] for one in placed]
    assert all(hot > random for hot, random in zip(*shares.values(), strict=True)), shares


def test_lowest_scores_leave_first(make_job: Any, tmp_path: Path) -> None:
    table = Table("t", 30, 4)
    job = make_job([table], table_wise, folder=str(tmp_path), fast_bytes=3 * 16)
    store = job.stores[0]

    def step(*rows: int) -> None:
        job.forward([[ids_of(rows)], [ids_of([])], [ids_of([])]])
        job.backward([[np.zeros((len(n), 4), "f4")] for n in (rows, (), ())], [0.1], 1)

    def in_memory() -> list[int]:
        found = []
        for row in range(30):
            before = loader.call("embedding_statistics", store=store)["fast_rows"]
            job.forward([[ids_of([row])], [ids_of([])], [ids_of([])]])
            found += [row] * (
                loader.call("embedding_statistics", store=store)["fast_rows"] - before
            )
        return found

    assert in_memory() == [0, 1, 2]  # before anything is known
    # Rows 20 and 21 were used most often, 22 and 23 last.
    uses = [(20, 21)] * 5 + [(22,), (23,), (22,)]
    expected = {"lfu": [20, 21, 22], "lru": [21, 22, 23], "score": [20, 21, 22]}
    for policy, rows in expected.items():
        loader.call("track_embeddings", store=store, policy=policy, decay=0.1)
        for used in uses:
            step(*used)
        step(21)
        loader.call("replace_embeddings", store=store)
        assert in_memory() == rows, policy


def test_labels_weigh_the_samples_of_a_row(make_job: Any, tmp_path: Path) -> None:
    job = make_job([Table("t", 30, 6)], column_wise, folder=str(tmp_path), fast_bytes=2 * 8)
    on_all(job, "track_embeddings", policy="score", decay=0.5, by_importance=True)
    ids = [[3, 3, 4, 4, 5, 5], [4], []]
    labels = [[0, 0, 1, 0, 1, 1], [1], []]
    job.forward([[ids_of(one)] for one in ids])
    weighed = [
        job.ops.trepak_embedding_importance(
            routed.routing, np.array(one, "f4"), positive=3.0, negative=0.5
        )
        for routed, one in zip(job.routed, labels, strict=True)
    ]
    assert weighed[0].importance.numpy().tolist() == [1.0, 3.5, 6.0] * RANKS
    received = job.all_to_all([tuple(one) for one in weighed])
    for store, request, (importance, _) in zip(job.stores, job.requests, received, strict=True):
        job.ops.trepak_embedding_score(*request, importance, store=store)
    placed = on_all(job, "place_embeddings", seed=None)
    # Rows 4 and 5: half of (3 + 0.5 + 3) and of 6.
    assert {one["fast_scores"] for one in placed} == {6.25}
    assert {one["scores"] for one in placed} == {6.75}
    with pytest.raises(
        tf.errors.InvalidArgumentError, match="'feature 0' has 6 samples.* 5 labels"
    ):
        job.ops.trepak_embedding_importance(job.routed[0].routing, np.zeros(5, "f4"))


def test_any_id_has_a_row_where_ids_are_hashed(make_job: Any) -> None:
    job = make_job([Rare("t", 11, 1, hashed=True)], row_wise)
    job.fill(0, np.arange(11, dtype="f4")[:, None])
    ids = [-1, 0, 1, 10, 11, 12345678901234567, -(1 << 63), (1 << 63) - 1]
    outputs = job.forward([[ids_of(ids)]] * RANKS)
    expected = [splitmix64(one & MASK) % 11 for one in ids]
    np.testing.assert_array_equal(outputs[0][0][:, 0], expected)


@pytest.mark.parametrize("has_tiers", [False, True])
def test_rows_that_are_not_admitted_share_the_default_row(
    has_tiers: bool, make_job: Any, tmp_path: Path
) -> None:
    options = {"folder": str(tmp_path), "fast_bytes": 40} if has_tiers else {}
    job = make_job([Rare("t", 9, 1, min_count=4)], table_wise, **options)
    job.fill(0, np.full((9, 1), 100, "f4"))
    store = job.stores[0]
    job.ops.trepak_embedding_write(0, 9, [[5.0]], store=store)

    def step(ids: list[list[int]]) -> Any:
        outputs = job.forward([[ids_of(one)] for one in ids])
        job.backward([[np.full((len(one), 1), 3, "f4")] for one in ids], [1.0], 1)
        return [one[:, 0].numpy().tolist() for (one,) in outputs]

    # Row 2 is asked for by two ranks, row 3 by one, each as often as a rank's batch has it.
    assert step([[2, 2], [2, 3], []]) == [[5, 5], [5, 5], []]
    assert job.ops.trepak_embedding_read(0, 9, 1, store=store)[0, 0] == 5 - 4
    assert step([[2], [2], [4]]) == [[1], [1], [1]]
    assert step([[2], [3], [4]]) == [[100], [-2], [-2]]
    assert step([[2], [], []]) == [[99], [], []]
    counted = loader.call("embedding_statistics", store=store)
    assert (counted["rows_admitted"], counted["rows_dropped"]) == (1, 0)


def test_rows_beyond_the_limit_start_afresh(make_job: Any) -> None:
    job = make_job([Rare("t", 1000, 3, min_count=1, row_limit=80)], column_wise)
    random = np.random.default_rng(1)
    on_all(job, "track_embeddings", policy="score")
    for _ in range(300):
        ids = [random.integers(0, 40, 10), random.integers(0, 1000, 10), []]
        job.forward([[ids_of(one)] for one in ids])
        job.backward([[np.ones((len(one), 3), "f4")] for one in ids], [0.1], 1)
        for store in job.stores:
            assert loader.call("embedding_statistics", store=store)["rows_admitted"] <= 80
    # The default row is trained in each step; what is used often has never begun as it was.
    weights = job.weights(0)
    assert weights[:40].min() > -20
    assert weights[40:].min() < -50
    first, second, _ = on_all(job, "embedding_statistics")
    assert first["rows_dropped"] > 1000
    assert first["rows_dropped"] == second["rows_dropped"]  # its columns, but the same rows


def test_options_are_checked(tmp_path: Path) -> None:
    names = ["user", "item"]
    for wrong, message in (
        ({"fast_bytes": 5}, "needs a folder="),
        ({"device": "GPU:0"}, "'GPU:0' needs fast_bytes="),
        ({"hashed": ["users"]}, r"hashed= names the tables \['users'\]"),
        ({"min_count": {"users": 1}}, r"min_count= names the tables \['users'\]"),
        ({"min_count": {"user": -1}}, "'user' must be at least 0"),
        ({"row_limit": {"user": 4}}, "'user' needs a min_count="),
    ):
        given: dict[str, Any] = {"fast_bytes": 0, "folder": None, "device": None}
        given |= {"hashed": False, "min_count": 0, "row_limit": 0, **wrong}
        with pytest.raises(ValueError, match=message):
            storage(**given).check(names)
    storage(1, tmp_path, None, ["user"], {"item": 3}, {"item": 4}).check(names)
    for arguments, message in (
        ({"warmup_steps": 0}, "warmup_steps"),
        ({"warmup_steps": 1, "placement": "cold"}, "'cold'"),
        ({"warmup_steps": 1, "policy": "fifo"}, "'fifo'"),
        ({"warmup_steps": 1, "policy": "lru", "labels": True}, "policy='score'"),
        ({"warmup_steps": 1, "decay": 1.0}, "decay"),
    ):
        with pytest.raises(ValueError, match=message):
            EmbeddingPlacement(**arguments)


def test_what_cannot_be_placed_is_named(make_job: Any, tmp_path: Path) -> None:
    job = make_job(TABLES)
    with pytest.raises(tf.errors.FailedPreconditionError, match="rank 0: .*folder="):
        on_all(job, "place_embeddings", seed=1)
    with pytest.raises(tf.errors.InvalidArgumentError, match="no policy 'fifo'"):
        on_all(job, "track_embeddings", policy="fifo")
    with pytest.raises(tf.errors.InvalidArgumentError, match="decay"):
        on_all(job, "track_embeddings", policy="score", decay=2.0)
    with pytest.raises(tf.errors.FailedPreconditionError, match=r"'a'.*/nowhere.*folder="):
        make_job(TABLES, row_wise, folder="/nowhere")

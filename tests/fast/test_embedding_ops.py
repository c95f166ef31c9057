"""Embeddings' ops: several stores play the ranks, and NumPy brings what they send each other."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import keras
import keras_rs
import numpy as np
import pytest
import tensorflow as tf
from embedding_job import PLANS, RANKS, Feature, Job, Table, grid, row_wise, shard

from trepak.ops import loader

CLOSE = {"rtol": 1e-5, "atol": 1e-6}
NO_WEIGHTS = tf.zeros([0])


@pytest.fixture
def make_job() -> Iterator[Any]:
    jobs = []

    def make(tables: list[Table], plan: Any = row_wise) -> Job:
        jobs.append(Job(tables, plan))
        return jobs[-1]

    yield make
    for job in jobs:
        job.close()


def feature_of(inputs: Any, weights: Any, combiner: str, table: int = 0) -> Feature:
    """Returns what a layer would make of ids as users give them."""
    if isinstance(inputs, tf.SparseTensor):
        inputs = tf.RaggedTensor.from_sparse(inputs)
        weights = None if weights is None else tf.RaggedTensor.from_sparse(weights)
    reduces = inputs.shape.rank == 2
    if isinstance(inputs, tf.RaggedTensor):
        ids, splits = inputs.values, inputs.row_splits
        flat = NO_WEIGHTS if weights is None else weights.values
    else:
        columns = inputs.shape[1] if reduces else 1
        ids = tf.reshape(inputs, [-1])
        splits = tf.range(inputs.shape[0] + 1, dtype=tf.int64) * columns
        flat = NO_WEIGHTS if weights is None else tf.reshape(weights, [-1])
    return Feature(table, ids, splits, flat, combiner, reduces)


def inputs_of(kind: str, weighted: bool, random: np.random.Generator, vocabulary: int) -> Any:
    """Returns ids, and weights or None, of 6 samples."""
    if kind in ("rank 1", "dense"):
        shape = (6,) if kind == "rank 1" else (6, 4)
        ids = tf.constant(random.integers(vocabulary, size=shape))
        weights = tf.constant(random.normal(size=shape).astype("f4"))
        return ids, weights if weighted else None
    lengths = [2, 0, 1, 5, 0, 3]
    ids = tf.RaggedTensor.from_row_lengths(random.integers(vocabulary, size=11), lengths)
    weights = ids.with_values(tf.constant(random.normal(size=11).astype("f4")))
    if kind == "sparse":
        # Beside ids there are holes, for which EmbedReduce looks up row 0 and masks it.
        ids, weights = ids.to_sparse(), weights.to_sparse()
    return ids, weights if weighted else None


@pytest.mark.parametrize("plan", PLANS)
@pytest.mark.parametrize("combiner", ["mean", "sum", "sqrtn"])
@pytest.mark.parametrize("weighted", [False, True], ids=["plain", "weighted"])
@pytest.mark.parametrize("kind", ["rank 1", "dense", "ragged", "sparse"])
def test_outputs_and_gradients_are_those_of_embed_reduce(
    plan: Any, combiner: str, weighted: bool, kind: str, make_job: Any
) -> None:
    random = np.random.default_rng(1)
    table = Table("words", 7, 5)
    job = make_job([table], plan)
    initial = random.normal(size=(table.vocabulary, table.dim)).astype("f4")
    job.fill(0, initial)
    np.testing.assert_array_equal(job.weights(0), initial)
    given = [inputs_of(kind, weighted, random, table.vocabulary) for _ in range(RANKS)]
    outputs = job.forward([[feature_of(*one, combiner)] for one in given])
    layer = keras_rs.layers.EmbedReduce(table.vocabulary, table.dim, combiner=combiner)
    layer.build((None,))
    layer.embeddings.assign(initial)
    sums = np.zeros_like(initial)
    gradients = []
    for (ids, weights), (output,) in zip(given, outputs, strict=True):
        gradient = random.normal(size=output.shape).astype("f4")
        with tf.GradientTape() as tape:
            expected = layer(ids) if weights is None else layer(ids, weights)
        np.testing.assert_allclose(output, expected, **CLOSE)
        of_table = tape.gradient(expected, layer.embeddings.value, output_gradients=gradient)
        sums += tf.convert_to_tensor(of_table).numpy()
        gradients.append([gradient])
    job.backward(gradients, [0.5], 1)
    np.testing.assert_allclose(job.weights(0), initial - 0.5 * sums / RANKS, **CLOSE)


OPTIMIZERS = {
    "sgd": ({}, keras.optimizers.SGD),
    "adagrad": ({"initial_accumulator_value": 0.2, "epsilon": 1e-3}, keras.optimizers.Adagrad),
    "adam": ({"beta_1": 0.8, "beta_2": 0.98, "epsilon": 1e-5}, keras.optimizers.Adam),
    "adam by default": ({}, keras.optimizers.Adam),
    "ftrl": (
        {
            "learning_rate_power": -0.6,
            "initial_accumulator_value": 0.3,
            "l1_regularization_strength": 0.01,
            "l2_regularization_strength": 0.02,
            "l2_shrinkage_regularization_strength": 0.03,
            "beta": 0.1,
        },
        keras.optimizers.Ftrl,
    ),
    "ftrl by default": ({}, keras.optimizers.Ftrl),
}


def one_id_each(ids: np.ndarray) -> Feature:
    return feature_of(tf.constant(ids), None, "sum")


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_row_optimizers_are_keras_where_all_rows_are_touched(name: str, make_job: Any) -> None:
    options, optimizer_class = OPTIMIZERS[name]
    random = np.random.default_rng(2)
    table = Table("t", 11, 6, {"name": name.split()[0], **options})
    job = make_job([table], grid)
    initial = random.normal(size=(table.vocabulary, table.dim)).astype("f4")
    job.fill(0, initial)
    variable = keras.Variable(initial)
    optimizer = optimizer_class(learning_rate=0.05, **options)
    for step in range(1, 21):
        orders = [random.permutation(table.vocabulary) for _ in range(RANKS)]
        gradients = [random.normal(size=initial.shape).astype("f4") for _ in range(RANKS)]
        job.forward([[one_id_each(order)] for order in orders])
        job.backward(
            [[one[order]] for one, order in zip(gradients, orders, strict=True)], [0.05], step
        )
        optimizer.apply([tf.constant(np.mean(gradients, axis=0))], [variable])
        np.testing.assert_allclose(job.weights(0), variable.numpy(), **CLOSE)


def lazy_step(name: str, rate: float, step: int, g: np.ndarray, row: list[np.ndarray]) -> None:
    """Updates the weights and slots of one row by Keras' formulas."""
    weights, *slots = row
    if name == "sgd":
        weights -= rate * g
    elif name == "adagrad":
        slots[0] += g**2
        weights -= rate * g / np.sqrt(slots[0] + 1e-7)
    elif name == "adam":
        slots[0] += (g - slots[0]) * (1 - 0.9)
        slots[1] += (g**2 - slots[1]) * (1 - 0.999)
        # In single precision, as Keras has these: 1 - 0.999 is another number then.
        beta_1, beta_2 = np.float32(0.9) ** np.float32(step), np.float32(0.999) ** np.float32(step)
        corrected = rate * np.sqrt(1 - beta_2) / (1 - beta_1)
        weights -= slots[0] * corrected / (np.sqrt(slots[1]) + 1e-7)
    else:
        new = slots[0] + g**2
        slots[1] += g - (np.sqrt(new) - np.sqrt(slots[0])) / rate * weights
        weights[:] = -slots[1] / (np.sqrt(new) / rate)
        slots[0][:] = new


@pytest.mark.parametrize("name", ["sgd", "adagrad", "adam", "ftrl"])
def test_row_optimizers_leave_rows_alone_that_a_step_does_not_touch(
    name: str, make_job: Any
) -> None:
    random = np.random.default_rng(3)
    table = Table("t", 40, 4, {"name": name})
    job = make_job([table], row_wise)
    initial = random.normal(size=(table.vocabulary, table.dim)).astype("f4")
    job.fill(0, initial)
    slots = {"sgd": [], "adagrad": [0.1], "adam": [0.0, 0.0], "ftrl": [0.1, 0.0]}[name]
    rows = [
        [weights.astype("f8"), *(np.full(table.dim, slot) for slot in slots)] for weights in initial
    ]
    for step in range(1, 21):
        ids = [random.integers(table.vocabulary, size=5) for _ in range(RANKS)]
        gradients = [random.normal(size=(5, table.dim)).astype("f4") for _ in range(RANKS)]
        job.forward([[one_id_each(one)] for one in ids])
        job.backward([[one] for one in gradients], [0.1], step)
        sums: dict[int, np.ndarray] = {}
        for row, gradient in zip(np.concatenate(ids), np.concatenate(gradients), strict=True):
            sums[row] = sums.get(row, 0) + gradient.astype("f8") / RANKS
        for row, gradient in sums.items():
            lazy_step(name, 0.1, step, gradient, rows[row])
        np.testing.assert_allclose(job.weights(0), [row[0] for row in rows], **CLOSE)
    for number, cut in enumerate(job.shards):
        got = job.ops.trepak_embedding_read(
            number, 0, cut["rows"], with_slots=True, store=job.stores[cut["rank"]]
        )
        mine = [np.concatenate(rows[row]) for row in range(cut["rank"], table.vocabulary, RANKS)]
        np.testing.assert_allclose(got, mine, **CLOSE)


def test_features_that_share_a_table_ask_for_a_row_once(make_job: Any) -> None:
    tables = [Table("user", 9, 3), Table("item", 5, 2)]
    job = make_job(tables, row_wise)
    for number, table in enumerate(tables):
        job.fill(number, np.arange(table.vocabulary * table.dim, dtype="f4").reshape(-1, table.dim))
    features = [
        feature_of(tf.constant([[1, 4], [4, 1]], tf.int64), None, "sum", 0),
        feature_of(tf.constant([4, 8], tf.int64), None, "sum", 0),
        feature_of(tf.constant([0, 0], tf.int64), None, "mean", 1),
    ]
    outputs = job.forward([features] * RANKS)[1]
    np.testing.assert_array_equal(outputs[0], [[15, 17, 19], [15, 17, 19]])
    np.testing.assert_array_equal(outputs[1], [[12, 13, 14], [24, 25, 26]])
    np.testing.assert_array_equal(outputs[2], [[0, 1], [0, 1]])
    counted = loader.call("embedding_statistics", store=job.stores[1])
    assert (counted["ids"], counted["unique_rows"]) == (8, 4)
    # Rows 1 and 4 of all three ranks are rank 1's.
    assert (counted["rows_looked_up"], counted["updates"]) == (6, 0)
    assert counted["bytes"] == 4 * (3 * 3 + 2 * 2)


def test_a_step_works_in_a_function(make_job: Any) -> None:
    job = make_job([Table("t", 4, 2)], lambda tables: [shard(0, 0, (0, 1, 4), (0, 2))])
    job.fill(0, np.arange(8, dtype="f4").reshape(4, 2))
    store = job.stores[0]

    @tf.function
    def step(ids: tf.Tensor, number: tf.Tensor) -> tf.Tensor:
        splits = tf.range(tf.size(ids, tf.int64) + 1)
        routed = job.ops.trepak_embedding_route(
            [ids], [splits], features=["f"], tables=[0], store=store
        )
        # This rank's own request stands for those of all: the others have no rows here.
        requests = tf.concat([routed.requests, tf.zeros([RANKS - 1], tf.int64)], 0)
        sizes = tf.concat([routed.request_splits[:1], tf.ones([RANKS - 1], tf.int64)], 0)
        values, _ = job.ops.trepak_embedding_lookup(requests, sizes, store=store)
        reduction = {"combiners": ["mean"], "reduces": [False]}
        (output,) = job.ops.trepak_embedding_combine(
            routed.routing, values, [NO_WEIGHTS], dims=[2], **reduction
        )
        assert output.shape.as_list() == [None, 2]
        gradient = job.ops.trepak_embedding_spread(
            routed.routing, [tf.ones_like(output)], [NO_WEIGHTS], **reduction
        )
        job.ops.trepak_embedding_update(
            requests, sizes, gradient, [1.0], number, scale=1.0, store=store
        )
        return output

    first = step(tf.constant([3, 1], tf.int64), tf.constant(1, tf.int64))
    np.testing.assert_array_equal(first, [[6, 7], [2, 3]])
    second = step(tf.constant([1, 1, 0], tf.int64), tf.constant(2, tf.int64))
    np.testing.assert_array_equal(second, [[1, 2], [1, 2], [0, 1]])
    np.testing.assert_array_equal(job.weights(0), [[-1, 0], [-1, 0], [4, 5], [5, 6]])


def test_wrong_ids_are_named(make_job: Any) -> None:
    job = make_job([Table("words", 7, 5)])
    for wrong in (-1, 7):
        ids = one_id_each(np.array([3, wrong]))
        message = f"'feature 0': the id at position 1 is {wrong}, .* vocabulary of 7"
        with pytest.raises(tf.errors.InvalidArgumentError, match=message):
            job.forward([[ids]] * RANKS)


def test_wrong_requests_and_gradients_are_named(make_job: Any) -> None:
    job = make_job([Table("words", 7, 5)])
    with pytest.raises(
        tf.errors.InvalidArgumentError, match="the request of rank 2: it asks for 9"
    ):
        job.ops.trepak_embedding_lookup([0, 0, 9, 1], [1, 1, 2], store=job.stores[0])
    job.forward([[one_id_each(np.array([3, 4]))]] * RANKS)
    gradients = [[np.full((2, 5), value, "f4")] for value in (1, np.nan, 1)]
    with pytest.raises(tf.errors.InvalidArgumentError, match="row 3 of .*'words' is not finite"):
        job.backward(gradients, [0.1], 1)
    np.testing.assert_array_equal(job.weights(0), np.zeros((7, 5)))


def test_wrong_plans_are_named(make_job: Any) -> None:
    table = Table("words", 7, 5)
    with pytest.raises(tf.errors.InvalidArgumentError, match="'words': no shard has .* row 6"):
        make_job([table], lambda tables: [shard(0, 0, (0, 1, 6), (0, 5))])
    table.optimizer = {"name": "adam", "amsgrad": True}
    with pytest.raises(tf.errors.InvalidArgumentError, match="'words'.*no option 'amsgrad'"):
        make_job([table])
    table.optimizer = {"name": "lion"}
    with pytest.raises(tf.errors.InvalidArgumentError, match="'words'.*no row optimizer 'lion'"):
        make_job([table])


def test_a_store_that_is_closed_is_named(make_job: Any) -> None:
    job = make_job([Table("words", 7, 5)])
    job.close()
    with pytest.raises(tf.errors.FailedPreconditionError, match="is not open"):
        job.weights(0)
    with pytest.raises(tf.errors.FailedPreconditionError, match="is not open"):
        loader.call("embedding_statistics", store=job.stores[0])

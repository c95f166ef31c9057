"""Embedding tables over ranks: equal to whole tables in one process, whatever the sharding."""

from __future__ import annotations

import functools
from typing import Any

import keras
import keras_rs
import numpy as np
import pytest
import tensorflow as tf
from harness import case

import trepak.keras as hvd
from trepak.tf_plugins.layers import initial_rows
from trepak.tf_plugins.layers.converted_embeddings import distribute_embeddings
from trepak.tf_plugins.layers.distributed_embedding import DistributedEmbedding

BATCH, STEPS = 6, 20
OPTIMIZERS = {
    "sgd": keras.optimizers.SGD(0.1),
    "adagrad": keras.optimizers.Adagrad(0.1),
    "adam": keras.optimizers.Adam(0.02),
    "ftrl": keras.optimizers.Ftrl(0.1, l1_regularization_strength=0.001),
}
COMBINERS = {"sgd": "mean", "adagrad": "mean", "adam": "sqrtn", "ftrl": "sum"}
ROWS = {"sgd": 7, "adagrad": 150, "adam": 40, "ftrl": 23}
COLUMNS = {"sgd": 4, "adagrad": 8, "adam": 5, "ftrl": 3}
# Of which table, and how many ids a sample has: as a vector, dense, ragged or sparse.
FEATURES = {
    "user": ("sgd", "vector", 1),
    "items": ("adagrad", "dense", 3),
    "seen": ("adam", "ragged", 4),
    "tags": ("ftrl", "sparse", 4),
    "also": ("adam", "dense", 2),
}


def feature_configs() -> dict[str, Any]:
    tables = {
        name: keras_rs.layers.TableConfig(
            name=name,
            vocabulary_size=ROWS[name],
            embedding_dim=COLUMNS[name],
            initializer=keras.initializers.RandomUniform(seed=5),
            optimizer=optimizer,
            combiner=COMBINERS[name],
        )
        for name, optimizer in OPTIMIZERS.items()
    }
    return {
        name: keras_rs.layers.FeatureConfig(
            name=name,
            table=tables[table],
            input_shape=(None,) if kind == "vector" else (None, most),
            output_shape=(None, COLUMNS[table]),
        )
        for name, (table, kind, most) in FEATURES.items()
    }


def drawn(rank: int, step: int) -> tuple[dict[str, Any], dict[str, Any]]:
    """Returns a rank's batch, as lists of ids and of weights: some are empty, many come twice."""
    random = np.random.default_rng([rank, step])
    ids, weights = {}, {}
    for name, (table, kind, most) in FEATURES.items():
        varies = kind in ("ragged", "sparse")
        counts = [random.integers(0, most + 1) if varies else most for _ in range(BATCH)]
        skewed = [np.minimum(random.geometric(0.1, n) - 1, ROWS[table] - 1) for n in counts]
        ids[name] = [row.tolist() for row in skewed]
        weights[name] = [random.uniform(0.5, 2, n).tolist() for n in counts]
    return ids, weights


def tensors(kind: str, rows: Any, dtype: Any) -> Any:
    """Returns lists of numbers as the tensor of that kind."""
    if kind in ("vector", "dense"):
        return tf.constant(np.reshape(rows, [len(rows), -1][: 1 + (kind == "dense")]), dtype)
    ragged = tf.ragged.constant(rows, dtype, ragged_rank=1, row_splits_dtype=tf.int64)
    return ragged if kind == "ragged" else as_sparse(ragged)


def as_sparse(ragged: Any) -> Any:
    columns = tf.concat([tf.range(n, dtype=tf.int64) for n in ragged.row_lengths()], 0)
    indices = tf.stack([ragged.value_rowids(), columns], 1)
    return tf.SparseTensor(indices, ragged.flat_values, [ragged.nrows(), 4])


def as_inputs(batch: tuple[Any, Any]) -> tuple[Any, Any]:
    ids, weights = batch
    kinds = {name: kind for name, (_, kind, _) in FEATURES.items()}
    return (
        {name: tensors(kinds[name], rows, tf.int64) for name, rows in ids.items()},
        {name: tensors(kinds[name], rows, tf.float32) for name, rows in weights.items()},
    )


def loss_of(outputs: dict[str, Any]) -> Any:
    """Returns a loss that each output has a part in, the mean over the samples."""
    parts = [tf.reduce_mean(tf.reduce_sum((v - 0.3) ** 2, 1)) for _, v in sorted(outputs.items())]
    return tf.add_n([(1 + number) * part for number, part in enumerate(parts)])


class WholeTables:
    """The reference: KerasRS's EmbedReduce over all ranks' samples, and NumPy's row optimizers."""

    def __init__(self, tables: dict[str, Any]) -> None:
        self.tables = {name: np.array(values) for name, values in tables.items()}
        self.slots = {
            name: [np.full_like(v, 0.1 if name in ("adagrad", "ftrl") else 0), np.zeros_like(v)]
            for name, v in self.tables.items()
        }
        self.updates = 0

    def step(self, batches: list[tuple[Any, Any]], is_weighted: bool) -> None:
        layers = {
            name: keras_rs.layers.EmbedReduce(ROWS[name], COLUMNS[name], combiner=COMBINERS[name])
            for name in self.tables
        }
        for name, layer in layers.items():
            layer.build((None,))
            layer.embeddings.assign(self.tables[name])
        with tf.GradientTape() as tape:
            losses = []
            for batch in batches:
                ids, weights = as_inputs(batch)
                outputs = {
                    name: layers[table](ids[name], weights[name] if is_weighted else None)
                    for name, (table, _, _) in FEATURES.items()
                }
                losses.append(loss_of(outputs))
            loss = tf.add_n(losses) / len(losses)
        values = {name: layer.embeddings.value for name, layer in layers.items()}
        gradients = tape.gradient(loss, values)
        self.updates += 1
        for name in self.tables:
            touched = [
                row
                for ids, _ in batches
                for feature, (table, _, _) in FEATURES.items()
                if table == name
                for row in np.concatenate(ids[feature]).astype(int)
            ]
            gradient = tf.convert_to_tensor(gradients[name]).numpy()
            self._apply(name, np.unique(np.array(touched, int)), gradient)

    def _apply(self, name: str, rows: Any, gradient: Any) -> None:
        w, (a, b), g = self.tables[name], self.slots[name], gradient[rows]
        rate = float(OPTIMIZERS[name].learning_rate)
        if name == "sgd":
            w[rows] -= rate * g
        elif name == "adagrad":
            a[rows] += g * g
            w[rows] -= rate * g / np.sqrt(a[rows] + 1e-7)
        elif name == "adam":
            a[rows] += (g - a[rows]) * (1 - 0.9)
            b[rows] += (g * g - b[rows]) * (1 - 0.999)
            rate *= np.sqrt(1 - 0.999**self.updates) / (1 - 0.9**self.updates)
            w[rows] -= rate * a[rows] / (np.sqrt(b[rows]) + 1e-7)
        else:
            grown = a[rows] + g * g
            b[rows] += g - (np.sqrt(grown) - np.sqrt(a[rows])) / rate * w[rows]
            quadratic = np.sqrt(grown) / rate
            w[rows] = (np.clip(b[rows], -0.001, 0.001) - b[rows]) / quadratic
            a[rows] = grown


def built(sharding: Any = "auto", **options: Any) -> DistributedEmbedding:
    layer = DistributedEmbedding(feature_configs(), sharding=sharding, **options)
    ids, _ = as_inputs(drawn(0, 0))
    layer.build({name: tuple(one.shape) for name, one in ids.items()})
    return layer


@functools.cache
def reference(is_weighted: bool) -> dict[str, Any]:
    """Returns what all shardings must end with: they begin alike."""
    whole = WholeTables(built().get_embedding_tables())
    for number in range(STEPS):
        whole.step([drawn(rank, number) for rank in range(hvd.size())], is_weighted)
    return whole.tables


def train(sharding: Any, is_weighted: bool, is_traced: bool) -> None:
    layer = built(sharding)

    def step(ids: Any, weights: Any) -> Any:
        with tf.GradientTape() as tape:
            loss = loss_of(layer(ids, weights if is_weighted else None))
        return tape.gradient(loss, layer.trainable_variables)

    run = tf.function(step, reduce_retracing=True) if is_traced else step
    for number in range(STEPS):
        run(*as_inputs(drawn(hvd.rank(), number)))
    expected = reference(is_weighted)
    for name, values in layer.get_embedding_tables().items():
        np.testing.assert_allclose(
            values, expected[name], rtol=1e-5, atol=1e-6, err_msg=f"{sharding} {name}"
        )


@case
def rows_equal_whole_tables() -> None:
    train("row", is_weighted=True, is_traced=True)


@case
def columns_equal_whole_tables() -> None:
    train("column", is_weighted=False, is_traced=True)


@case
def tables_equal_whole_tables() -> None:
    train("table", is_weighted=True, is_traced=False)


@case
def all_shardings_at_once_equal_whole_tables() -> None:
    train({"sgd": "table", "adagrad": "row", "adam": "column"}, is_weighted=True, is_traced=True)


@case
def they_begin_alike_on_any_number_of_ranks() -> None:
    """As blocks of rows that are drawn whatever the ranks."""
    for sharding in ("row", "column", "table"):
        for name, table in built(sharding).get_embedding_tables().items():
            initializer = keras.initializers.RandomUniform(seed=5)
            drawn_blocks = initial_rows.blocks(initializer, name, ROWS[name], COLUMNS[name])
            np.testing.assert_array_equal(table, np.concatenate([rows for _, rows in drawn_blocks]))


def model_on(layer: Any) -> keras.Model:
    keras.utils.set_random_seed(2)
    inputs = {
        "a": keras.Input([2], dtype="int64", name="a"),
        "b": keras.Input([], dtype="int64", name="b"),
    }
    outputs = layer(inputs)
    both = keras.layers.Concatenate()([outputs["a"], outputs["b"]])
    return keras.Model(inputs, keras.layers.Dense(1)(keras.layers.Dense(5, "tanh")(both)))


def two_features(placement: str) -> dict[str, Any]:
    configs = {}
    for name, rows, shape in (("a", 200, (None, 2)), ("b", 9, (None,))):
        table = keras_rs.layers.TableConfig(
            name, rows, 4, optimizer=keras.optimizers.SGD(0.5), placement=placement
        )
        configs[name] = keras_rs.layers.FeatureConfig(name, table, shape, (None, 4))
    return configs


def dense_weights(model: keras.Model) -> list[Any]:
    return [
        weights
        for layer in model.layers
        if isinstance(layer, keras.layers.Dense)
        for weights in layer.get_weights()
    ]


@case
def fit_equals_one_process() -> None:
    """KerasRS's own layer, one process, all ranks' samples; one import is all that changes."""
    size, random = hvd.size(), np.random.default_rng(1)
    rows = 4 * BATCH * size
    ids = {"a": random.integers(0, 200, [rows, 2]), "b": random.integers(0, 9, rows)}
    labels = random.uniform(size=[rows, 1]).astype("float32")
    ours = model_on(DistributedEmbedding(two_features("auto")))
    alone = model_on(keras_rs.layers.DistributedEmbedding(two_features("default_device")))
    alone.set_weights([*embedding_tables(ours), *dense_weights(ours)])
    ours.compile(hvd.DistributedOptimizer(keras.optimizers.SGD(0.5)), loss="mse")
    alone.compile(keras.optimizers.SGD(0.5), loss="mse")
    mine = {name: one[hvd.rank() :: size] for name, one in ids.items()}
    options = {"epochs": 2, "shuffle": False, "verbose": 0}
    ours.fit(mine, labels[hvd.rank() :: size], batch_size=BATCH, **options)
    alone.fit(ids, labels, batch_size=BATCH * size, **options)
    for mine_of, theirs in zip(
        [*embedding_tables(ours), *dense_weights(ours)], alone.get_weights(), strict=True
    ):
        np.testing.assert_allclose(mine_of, theirs, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(
        ours.predict(ids, verbose=0), alone.predict(ids, verbose=0), rtol=1e-3, atol=1e-4
    )


def plain_model(seed: int) -> keras.Model:
    """A shared EmbedReduce, and an Embedding of ids that are computed."""
    keras.utils.set_random_seed(seed)
    ids = {
        "a": keras.Input([2], dtype="int64", name="a"),
        "b": keras.Input([], dtype="int64", name="b"),
    }
    shared = keras_rs.layers.EmbedReduce(200, 4, name="shared")
    computed = keras.layers.Embedding(5, 3, name="computed")(ids["b"] // 2)
    rows = [shared(ids["a"]), shared(ids["b"]), computed]
    hidden = keras.layers.Dense(5, "tanh")(keras.layers.Concatenate()(rows))
    return keras.Model(ids, keras.layers.Dense(1)(hidden))


@case
def a_converted_model_trains_as_one_process_does() -> None:
    """Each rank's own embeddings begin differently: the tables are rank 0's."""
    size, random = hvd.size(), np.random.default_rng(1)
    rows = 4 * BATCH * size
    ids = {"a": random.integers(0, 200, [rows, 2]), "b": random.integers(0, 9, rows)}
    labels = random.uniform(size=[rows, 1]).astype("float32")
    rate = keras.optimizers.SGD(0.5)
    ours, alone = distribute_embeddings(plain_model(hvd.rank()), rate), plain_model(0)
    ours.compile(hvd.DistributedOptimizer(keras.optimizers.SGD(0.5)), loss="mse")
    alone.compile(keras.optimizers.SGD(0.5), loss="mse")
    mine = {name: one[hvd.rank() :: size] for name, one in ids.items()}
    options = {"epochs": 2, "shuffle": False, "verbose": 0}
    broadcast = [hvd.callbacks.BroadcastGlobalVariablesCallback(0)]
    labels_of_mine = labels[hvd.rank() :: size]
    ours.fit(mine, labels_of_mine, batch_size=BATCH, callbacks=broadcast, **options)
    alone.fit(ids, labels, batch_size=BATCH * size, **options)
    theirs = [alone.get_layer(name).embeddings for name in ("computed", "shared")]
    mine_of = [*embedding_tables(ours), *dense_weights(ours)]
    for one, other in zip(mine_of, [*theirs, *dense_weights(alone)], strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-5)


def embedding_tables(model: keras.Model) -> list[Any]:
    layer = next(one for one in model.layers if isinstance(one, DistributedEmbedding))
    return [table.numpy() for _, table in sorted(layer.get_embedding_tables().items())]


@case
def ids_that_no_table_has_are_refused() -> None:
    layer = DistributedEmbedding(feature_configs())
    for wrong in (-1, ROWS["sgd"]):
        ids, _ = as_inputs(drawn(0, 0))
        ids["user"] = tf.constant([0, wrong])
        with pytest.raises(tf.errors.InvalidArgumentError, match=f"user.*{wrong}"):
            layer(ids)


@case
def a_rank_may_have_an_empty_batch() -> None:
    """It waits for the others, and they for it; the updates are the others' alone."""
    layer = built()
    inputs, _ = as_inputs(drawn(hvd.rank(), 0))
    if hvd.rank() == hvd.size() - 1:
        sparse = tf.sparse.slice(inputs["tags"], [0, 0], [0, 4])
        inputs = {name: sparse if name == "tags" else one[:0] for name, one in inputs.items()}
    with tf.GradientTape() as tape:
        outputs = layer(inputs)
        loss = tf.add_n([tf.reduce_sum(one) for one in outputs.values()])
    tape.gradient(loss, layer.trainable_variables)
    assert all(np.all(np.isfinite(table)) for table in layer.get_embedding_tables().values())
    assert layer.tables.statistics()["updates"] == 1


@case
def gradients_that_are_no_numbers_are_refused() -> None:
    """By the rank that has the row, which names it; nothing of that update is applied there."""
    layer = built("table")
    number = [table.name for table in layer.tables.plan.tables].index("sgd")
    before = layer.tables.whole(number)
    inputs, _ = as_inputs(drawn(hvd.rank(), 0))
    with tf.GradientTape() as tape:
        loss = tf.reduce_sum(layer(inputs)["user"]) * float("nan")
    plan = layer.tables.plan
    owner = next(one.rank for one in plan.shards if one.table == number)
    if hvd.rank() == owner:
        with pytest.raises(tf.errors.InvalidArgumentError, match="'sgd' is not finite"):
            tape.gradient(loss, layer.trainable_variables)
    else:
        tape.gradient(loss, layer.trainable_variables)
    if hvd.rank() == owner:
        np.testing.assert_array_equal(layer.tables.whole(number), before)


@case
def options_that_rows_cannot_have_are_refused() -> None:
    for optimizer, what in (
        (keras.optimizers.SGD(momentum=0.9), "momentum=0.9"),
        (keras.optimizers.Adam(clipnorm=1.0), "clipnorm=1.0"),
        (keras.optimizers.RMSprop(), "RMSprop"),
    ):
        table = keras_rs.layers.TableConfig("t", 4, 2, optimizer=optimizer)
        with pytest.raises(ValueError, match=what):
            DistributedEmbedding(keras_rs.layers.FeatureConfig("f", table, (2,), (2, 2)))

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


def built(sharding: Any = "auto") -> DistributedEmbedding:
    layer = DistributedEmbedding(feature_configs(), sharding=sharding)
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
def they_begin_alike_on_any_number_of_ranks() -> list[float]:
    """The sums are the same in all jobs; test_embeddings compares them."""
    tables = built().get_embedding_tables()
    return [float(tf.reduce_sum(table)) for table in tables.values()]


@case
def fit_equals_one_process() -> None:
    """A whole model: its dense layers by the model's optimizer, its tables by their own."""
    rows = 4 * BATCH * hvd.size()
    random = np.random.default_rng(1)
    ids = {"a": random.integers(0, 200, [rows, 2]), "b": random.integers(0, 9, rows)}
    labels = random.uniform(size=[rows, 1]).astype("float32")
    dataset = tf.data.Dataset.from_tensor_slices((ids, labels))
    together = fitted(keras_rs_like=False, dataset=dataset.shard(hvd.size(), hvd.rank()))
    # The samples of a step of all ranks, as one process would take them.
    alone = fitted(keras_rs_like=True, dataset=dataset)
    for ours, theirs in zip(together, alone, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=1e-5)


def fitted(keras_rs_like: bool, dataset: Any) -> list[Any]:
    """Returns the weights and tables of a model after two epochs, and its predictions."""
    keras.utils.set_random_seed(2)
    configs = {}
    for name, vocabulary, shape in (("a", 200, (None, 2)), ("b", 9, (None,))):
        table = keras_rs.layers.TableConfig(
            name,
            vocabulary,
            4,
            initializer=keras.initializers.RandomNormal(seed=3),
            optimizer=keras.optimizers.SGD(0.5),
            placement="default_device" if keras_rs_like else "auto",
        )
        configs[name] = keras_rs.layers.FeatureConfig(name, table, shape, (None, 4))
    layer = (keras_rs.layers.DistributedEmbedding if keras_rs_like else DistributedEmbedding)(
        configs
    )
    inputs = {"a": keras.Input([2], dtype="int64"), "b": keras.Input([], dtype="int64")}
    embedded = layer(inputs)
    hidden = keras.layers.Dense(5, "tanh")(
        keras.layers.Concatenate()([embedded["a"], embedded["b"]])
    )
    model = keras.Model(inputs, keras.layers.Dense(1)(hidden))
    optimizer = keras.optimizers.SGD(0.5)
    if not keras_rs_like:
        optimizer = hvd.DistributedOptimizer(optimizer)
    else:
        tables = built_tables()
        for name, values in tables.items():
            layer._default_device_embedding_layers[name].embeddings.assign(values)
    model.compile(optimizer, loss="mse", jit_compile=False)
    batch = BATCH * (hvd.size() if keras_rs_like else 1)
    model.fit(dataset.batch(batch), epochs=2, shuffle=False, verbose=0)
    predicted = model.predict(dataset.take(BATCH).batch(BATCH), verbose=0)
    assert np.isfinite(predicted).all()
    dense = [
        v.numpy() for layer in model.layers for v in layer.trainable_variables if v.shape != (1,)
    ]
    return [
        *dense[-4:],
        *(table.numpy() for _, table in sorted(layer.get_embedding_tables().items())),
    ]


@case
def ids_that_no_table_has_are_refused() -> None:
    layer = DistributedEmbedding(feature_configs())
    for wrong in (-1, ROWS["sgd"]):
        ids, _ = as_inputs(drawn(0, 0))
        ids["user"] = tf.constant([0, wrong])
        with pytest.raises(tf.errors.InvalidArgumentError, match=f"user.*{wrong}"):
            layer(ids)


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

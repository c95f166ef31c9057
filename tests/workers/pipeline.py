"""Sven's pipeline: exact where it promises that, otherwise what the engine's log says."""

from __future__ import annotations

import time
from typing import Any

import keras
import keras_rs
import numpy as np
import tensorflow as tf
from harness import case
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import trepak
import trepak.keras as hvd
from trepak.ops.loader import call, load
from trepak.tf_plugins.layers.distributed_embedding import DistributedEmbedding
from trepak.tf_plugins.layers.embedding_schedule import scheduled

BATCH, STEPS = 8, 9
ROWS = {"a": 60, "b": 7}


def feature_configs() -> dict[str, Any]:
    configs = {}
    for name, optimizer in (
        ("a", keras.optimizers.Adam(0.05)),
        ("b", keras.optimizers.Adagrad(0.2)),
    ):
        table = keras_rs.layers.TableConfig(name, ROWS[name], 4, optimizer=optimizer)
        configs[name] = keras_rs.layers.FeatureConfig(name, table, (None, 2), (None, 4))
    return configs


def model_with_embeddings() -> keras.Model:
    keras.utils.set_random_seed(4)
    configs = feature_configs()
    inputs = {name: keras.Input([2], dtype="int64", name=name) for name in configs}
    outputs = DistributedEmbedding(configs)(inputs)
    hidden = keras.layers.Concatenate()([outputs["a"], outputs["b"]])
    hidden = keras.layers.Dense(6, activation="tanh")(hidden)
    return keras.Model(inputs, keras.layers.Dense(1)(hidden))


def layer_of(model: keras.Model) -> DistributedEmbedding:
    return next(one for one in model.layers if isinstance(one, DistributedEmbedding))


def samples(rank: int, steps: int = STEPS) -> tuple[dict[str, Any], Any]:
    random = np.random.default_rng([7, rank])
    ids = {name: random.geometric(0.1, [steps * BATCH, 2]) % rows for name, rows in ROWS.items()}
    return ids, random.uniform(size=[steps * BATCH, 1]).astype("float32")


def compiled(stages: int, optimizer: Any = None) -> keras.Model:
    model = model_with_embeddings()
    chosen = keras.optimizers.Adam(0.01) if optimizer is None else optimizer
    model.compile(hvd.DistributedOptimizer(chosen), loss="mse", jit_compile=False)
    return trepak.pipeline(model, stages)


def fit(model: keras.Model, steps: int = STEPS, **options: Any) -> Any:
    ids, labels = samples(hvd.rank(), steps)
    options = {"batch_size": BATCH, "shuffle": False, "verbose": 0, **options}
    return model.fit(ids, labels, **options)


def state_of(model: keras.Model) -> list[Any]:
    tables = layer_of(model).get_embedding_tables()
    dense = [variable.numpy() for variable in model.trainable_variables]
    return [*dense, *(table.numpy() for _, table in sorted(tables.items()))]


@case
def one_stage_changes_nothing() -> None:
    states = []
    for stages in (0, 1):
        model = compiled(stages)
        fit(model, epochs=2)
        states.append(state_of(model))
    for plain, piped in zip(*states, strict=True):
        np.testing.assert_array_equal(plain, piped)


@case
def look_ups_miss_two_updates_and_no_more() -> dict[str, Any]:
    model = compiled(4)
    fit(model)
    permits = layer_of(model).tables.permits()
    assert permits["versions"] == [max(0, step - 2) for step in range(STEPS)], permits
    assert permits["most_stale"] == 2
    counted = layer_of(model).tables.statistics()
    assert counted["updates"] == STEPS, "all updates are made when an epoch is over"
    return permits


class Replayed:
    """A schedule of one process: the rows are given, the gradients are kept."""

    def __init__(self, routing: Any, values: Any) -> None:
        self.routing, self.values, self.gradients = routing, values, []

    def look_up(self, tables: Any, inputs: Any, anchor: Any) -> list[Any]:
        weights = [tf.zeros([0]) for _ in inputs]
        how = {
            "combiners": [feature.combiner for feature in tables.features],
            "reduces": [one.reduces for one in inputs],
        }

        @tf.custom_gradient
        def combined(anchor: Any) -> Any:
            outputs = load().trepak_embedding_combine(
                self.routing, self.values, weights, dims=[4, 4], **how
            )

            def gradient(*grads: Any) -> Any:
                self.gradients.append(
                    load().trepak_embedding_spread(self.routing, grads, weights, **how)
                )
                return tf.zeros_like(anchor)

            return outputs, gradient

        return list(combined(anchor))


class OneProcess:
    """All ranks' stores in this process; the exchanges are slices."""

    def __init__(self, layer: DistributedEmbedding, tables: dict[str, Any]) -> None:
        self.layer, plan = layer, layer.tables.plan
        self.stores = [
            call("open_embeddings", **described_for(layer, rank))["store"]
            for rank in range(plan.ranks)
        ]
        for number, shard in enumerate(plan.shards):
            values = tables[plan.tables[shard.table].name][shard.first_row :: shard.row_stride]
            columns = slice(shard.first_column, shard.first_column + shard.columns)
            load().trepak_embedding_write(
                number, 0, np.ascontiguousarray(values[:, columns]), store=self.stores[shard.rank]
            )

    def route(self, rank: int, inputs: dict[str, Any]) -> Any:
        return load().trepak_embedding_route(
            [tf.reshape(inputs[name], [-1]) for name in ("a", "b")],
            [tf.range(BATCH + 1, dtype=tf.int64) * 2] * 2,
            features=["a", "b"],
            tables=[feature.table for feature in self.layer.tables.features],
            store=self.stores[rank],
        )

    def look_up(self, owner: int, wanted: Any, splits: Any) -> list[Any]:
        values, counts = load().trepak_embedding_lookup(wanted, splits, store=self.stores[owner])
        return tf.split(values, counts)

    def update(self, owner: int, wanted: Any, splits: Any, gradients: Any, step: int) -> None:
        load().trepak_embedding_update(
            wanted,
            splits,
            tf.concat(gradients, 0),
            tf.constant([0.05, 0.2]),
            tf.constant(step, tf.int64),
            tf.constant(1 / len(self.stores), tf.float32),
            store=self.stores[owner],
        )


def described_for(layer: DistributedEmbedding, rank: int) -> dict[str, Any]:
    import dataclasses

    from trepak.tf_plugins.layers import row_optimizers

    plan = layer.tables.plan
    tables = [
        {
            "name": table.name,
            "vocabulary": table.rows,
            "dim": table.columns,
            "optimizer": row_optimizers.described(optimizer),
        }
        for table, optimizer in zip(plan.tables, layer.tables.optimizers, strict=True)
    ]
    shards = [dataclasses.asdict(shard) for shard in plan.shards]
    return {"rank": rank, "ranks": plan.ranks, "tables": tables, "shards": shards}


@case
def four_stages_equal_a_replay_of_the_log() -> None:
    """In one process, bit for bit: updates are applied in the order that each owner's log has."""
    if hvd.size() != 2:
        return  # three ranks' dense gradients are summed in an order that is Horovod's own
    model = compiled(4, keras.optimizers.SGD(0.1))
    before = {name: one.numpy() for name, one in layer_of(model).get_embedding_tables().items()}
    dense = model.get_weights()
    fit(model)
    logs = trepak.allgather_object(layer_of(model).tables.permits()["versions"])
    replayed = replay(compiled(0, keras.optimizers.SGD(0.1)), dense, before, logs)
    for ours, theirs in zip(state_of(model), replayed, strict=True):
        np.testing.assert_array_equal(ours, theirs)


def replay(model: keras.Model, dense: Any, tables: dict[str, Any], logs: Any) -> list[Any]:
    model.set_weights(dense)
    layer, ranks = layer_of(model), range(hvd.size())
    job = OneProcess(layer, tables)
    optimizer = keras.optimizers.SGD(0.1)
    optimizer.build(model.trainable_variables)
    all_samples = [samples(rank) for rank in ranks]
    asked: list[Any] = []  # by step and rank: routing, and what each owner is asked
    back: list[Any] = []  # by step and rank: by owner, gradients
    applied = [0 for _ in ranks]

    @tf.function
    def gradients_of(inputs: Any, labels: Any, routing: Any, values: Any) -> Any:
        schedule = Replayed(routing, values)
        with scheduled([layer], [schedule]), tf.GradientTape() as tape:
            loss = tf.reduce_mean((labels - model(inputs, training=True)) ** 2)
        return tape.gradient(loss, model.trainable_variables), schedule.gradients[0]

    def apply_until(owner: int, version: int) -> None:
        while applied[owner] < version:
            step = applied[owner]
            wanted, splits = gathered(asked[step], owner)
            job.update(owner, wanted, splits, [one[owner] for one in back[step]], step + 1)
            applied[owner] += 1

    for step in range(STEPS):
        part = slice(step * BATCH, (step + 1) * BATCH)
        inputs = [{name: tf.constant(one[part]) for name, one in x.items()} for x, _ in all_samples]
        routes = [job.route(rank, inputs[rank]) for rank in ranks]
        asked.append([(one[3], tf.split(one[0], one[1]), one[2]) for one in routes])
        rows = []  # by owner and rank
        for owner in ranks:
            apply_until(owner, logs[owner][step])
            rows.append(job.look_up(owner, *gathered(asked[step], owner)))
        results = []
        for rank in ranks:
            values = tf.concat([rows[owner][rank] for owner in ranks], 0)
            labels = tf.constant(all_samples[rank][1][part])
            results.append(gradients_of(inputs[rank], labels, asked[step][rank][0], values))
        mean = [(a + b) / 2 for a, b in zip(results[0][0], results[1][0], strict=True)]
        optimizer.apply(mean, model.trainable_variables)
        back.append([tf.split(one[1], asked[step][rank][2]) for rank, one in enumerate(results)])
    found = {name: np.array(values) for name, values in tables.items()}
    for owner in ranks:
        apply_until(owner, STEPS)
    for number, shard in enumerate(layer.tables.plan.shards):
        values = load().trepak_embedding_read(number, 0, shard.rows, store=job.stores[shard.rank])
        columns = slice(shard.first_column, shard.first_column + shard.columns)
        name = layer.tables.plan.tables[shard.table].name
        found[name][shard.first_row :: shard.row_stride, columns] = values
    dense_now = [variable.numpy() for variable in model.trainable_variables]
    return [*dense_now, *(table for _, table in sorted(found.items()))]


def gathered(of_step: Any, owner: int) -> tuple[Any, Any]:
    parts = [requests[owner] for _, requests, _ in of_step]
    return tf.concat(parts, 0), tf.constant([len(part) for part in parts], tf.int64)


@tf.custom_gradient
def slow(value: Any, forward: Any, backward: Any) -> Any:
    """Takes so many ms forward, and backward: what a rank's batch says."""

    def sleeping(value: Any, milliseconds: Any) -> Any:
        def sleep(value: Any, milliseconds: Any) -> Any:
            time.sleep(float(tf.reduce_max(milliseconds)) / 1000)
            return value

        return tf.ensure_shape(
            tf.numpy_function(sleep, [value, milliseconds], value.dtype), value.shape
        )

    def gradient(upstream: Any) -> Any:
        return sleeping(upstream, backward), tf.zeros_like(forward), tf.zeros_like(backward)

    return sleeping(value, forward), gradient


@keras.saving.register_keras_serializable("tests")
class Slow(keras.layers.Layer):
    """A layer between the embeddings and the rest, as slow as its inputs say."""

    def call(self, value: Any, forward: Any, backward: Any) -> Any:
        return slow(value, forward, backward)


@case
def no_look_up_is_staler_whatever_the_times() -> int:
    """Hypothesis draws how long each rank computes forward and backward in each step."""
    configs = feature_configs()
    inputs = {name: keras.Input([2], dtype="int64", name=name) for name in configs}
    times = {name: keras.Input([1], name=name) for name in ("forward", "backward")}
    outputs = DistributedEmbedding(configs)(inputs)
    hidden = keras.layers.Concatenate()([outputs["a"], outputs["b"]])
    hidden = Slow()(hidden, times["forward"], times["backward"])
    model = keras.Model({**inputs, **times}, keras.layers.Dense(1)(hidden))
    model.compile(hvd.DistributedOptimizer(keras.optimizers.SGD(0.1)), loss="mse")
    trepak.pipeline(model)
    ids, labels = samples(hvd.rank())
    milliseconds = st.lists(st.integers(0, 8), min_size=STEPS, max_size=STEPS)
    of_ranks = st.lists(st.tuples(milliseconds, milliseconds), min_size=hvd.size(), max_size=3)
    examples = []

    # Without randomness of their own, all ranks draw the same examples.
    @settings(
        max_examples=12,
        derandomize=True,
        database=None,
        deadline=None,
        suppress_health_check=[HealthCheck.too_slow],
    )
    @given(of_ranks)
    def trains(drawn: Any) -> None:
        forward, backward = drawn[hvd.rank()]
        data = {
            **ids,
            "forward": np.repeat(np.array(forward, "float32"), BATCH)[:, None],
            "backward": np.repeat(np.array(backward, "float32"), BATCH)[:, None],
        }
        model.fit(data, labels, batch_size=BATCH, shuffle=False, verbose=0)
        permits = layer_of(model).tables.permits()
        assert all(seen >= step - 2 for step, seen in enumerate(permits["versions"])), permits
        assert permits["look_ups"] == STEPS
        examples.append(permits["most_stale"])

    trains()
    assert len(examples) >= 12
    return max(examples)

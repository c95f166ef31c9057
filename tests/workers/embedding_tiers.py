"""Embedding tables in two tiers: whatever lies where, training is as without, bit for bit."""

from __future__ import annotations

import contextlib
import gc
import io
import tempfile
from collections.abc import Callable
from typing import Any

import keras
import keras_rs
import numpy as np
import pytest
import tensorflow as tf
from embeddings import as_inputs, drawn, feature_configs, loss_of
from harness import case

import trepak.keras as hvd
from trepak.callbacks import EmbeddingPlacement
from trepak.horovod_ext import exchange
from trepak.layers import DistributedEmbedding
from trepak.tf_plugins.layers.embedding_storage import Storage
from trepak.tf_plugins.model.pipeline import pipeline

STEPS, ROWS, BATCH = 12, 400, 8


def trained(sharding: Any, between: Callable[[Any, int], None], **options: Any) -> Any:
    """Returns the tables after some steps, and the layer."""
    layer = DistributedEmbedding(feature_configs(), sharding=sharding, **options)

    @tf.function(reduce_retracing=True)
    def step(ids: Any, weights: Any) -> Any:
        with tf.GradientTape() as tape:
            loss = loss_of(layer(ids, weights))
        return tape.gradient(loss, layer.trainable_variables)

    for number in range(STEPS):
        step(*as_inputs(drawn(hvd.rank(), number)))
        between(layer, number)
    tables = {name: one.numpy() for name, one in layer.get_embedding_tables().items()}
    return tables, layer


def check_same(got: dict[str, Any], wanted: dict[str, Any]) -> None:
    for name, values in wanted.items():
        assert values.tobytes() == got[name].tobytes(), name


def move(layer: Any, step: int) -> None:
    """Moves rows, on each rank in another way."""
    tiers = layer.tables.tiers
    if step == 0:
        tiers.track("lru")
    elif (step + hvd.rank()) % 3 == 0:
        tiers.place(seed=step)
    elif (step + hvd.rank()) % 3 == 1:
        tiers.place()
    else:
        tiers.replace()


@case
def tiers_change_nothing() -> None:
    for sharding in ("row", "column", "table"):
        plain, _ = trained(sharding, lambda layer, step: None)
        with tempfile.TemporaryDirectory() as folder:
            tiered, layer = trained(sharding, move, folder=folder, fast_bytes=1500)
        check_same(tiered, plain)
        counted = layer.tables.statistics()
        assert counted["evictions"] > 0 and 0 < counted["fast_bytes"] <= 1500, counted


def model_of(**options: Any) -> Any:
    """Returns a model with one large table, of which few rows are used often."""
    keras.utils.set_random_seed(3)
    table = keras_rs.layers.TableConfig(
        "clicked", ROWS, 4, initializer=keras.initializers.RandomNormal(seed=4), optimizer="adagrad"
    )
    feature = keras_rs.layers.FeatureConfig("clicked", table, (None, 3), (None, 4))
    inputs = keras.Input([3], dtype="int64")
    embedded = DistributedEmbedding(feature, sharding="row", **options)(inputs)
    model = keras.Model(inputs, keras.layers.Dense(1, "sigmoid")(embedded))
    optimizer = hvd.DistributedOptimizer(keras.optimizers.SGD(0.1))
    model.compile(optimizer, loss="binary_crossentropy", jit_compile=False)
    return model


def data(steps: int) -> Any:
    """Returns this rank's samples. Row numbers say nothing of how often rows are used."""
    random = np.random.default_rng([hvd.rank(), 9])
    order = np.random.default_rng(5).permutation(ROWS)
    ids = order[np.minimum(random.geometric(0.02, [steps * BATCH, 3]) - 1, ROWS - 1)]
    labels = (random.uniform(size=[steps * BATCH, 1]) < 0.2).astype("float32")
    return tf.data.Dataset.from_tensor_slices((ids, labels)).batch(BATCH)


def fitted(callbacks: list[Any], stages: int = 0, **options: Any) -> tuple[Any, Any]:
    model = pipeline(model_of(**options), stages)
    model.fit(data(40), epochs=2, verbose=0, shuffle=False, callbacks=callbacks)
    layer = next(one for one in model.layers if isinstance(one, DistributedEmbedding))
    tables = {name: one.numpy() for name, one in layer.get_embedding_tables().items()}
    tables["dense"] = model.get_weights()[-2]
    del model
    gc.collect()  # as harness.py does, and sooner: TensorFlow holds up who ends an old iterator
    return tables, layer


@case
def hot_rows_are_placed_after_the_warm_up() -> list[Any]:
    plain, _ = fitted([])
    shares = {}
    for kind in ("hot", "random"):
        callback = EmbeddingPlacement(30, kind, seed=1)
        with (
            tempfile.TemporaryDirectory() as folder,
            contextlib.redirect_stdout(io.StringIO()) as out,
        ):
            tables, layer = fitted([callback], folder=folder, fast_bytes=1600)
        check_same(tables, plain)
        placed = callback.placement
        assert placed is not None and placed.step == 30
        # Records of 4 weights and 4 accumulators: 50 of a rank's 200 rows.
        assert (placed.alpha, placed.fast_rows, placed.rows) == (0.25, 100, ROWS)
        assert placed.measured == pytest.approx(placed.expected, abs=0.1)
        assert placed.moves == 0
        assert layer.tables.statistics()["fast_bytes"] == 1600
        shares[kind] = placed.measured
        printed = ("alpha 0.2500" in out.getvalue()) + ("measured hit share" in out.getvalue())
        assert printed == (2 if hvd.rank() == 0 else 0), out.getvalue()
    assert shares["hot"] > 0.5 > shares["random"], shares
    return sorted(shares.values())  # the same on all ranks


@case
def rows_take_others_place_by_any_policy() -> None:
    for policy, stages in (("score", 0), ("score", 4), ("lru", 1), ("lfu", 4)):
        plain, _ = fitted([], stages)
        callback = EmbeddingPlacement(
            5,
            policy=policy,
            every=7,
            decay=0.05,
            labels=policy == "score",
            positive=5.0,
            negative=0.5,
            verbose=0,
        )
        with tempfile.TemporaryDirectory() as folder:
            tables, _ = fitted([callback], stages, folder=folder, fast_bytes=1600)
        check_same(tables, plain)
        placed = callback.placement
        assert placed is not None and placed.evictions > 0, (policy, placed)
        assert 0.4 < placed.measured < 1, (policy, placed)


@case
def labels_count_in_fit() -> None:
    """With negative=0 only rows of positive samples have a score, in a pipeline too."""
    scored = []
    for labels, stages in ((True, 0), (True, 4), (lambda y: 0 * y, 0)):
        callback = EmbeddingPlacement(
            1, policy="score", every=10**6, labels=labels, negative=0.0, verbose=0
        )
        with tempfile.TemporaryDirectory() as folder:
            _, layer = fitted([callback], stages, folder=folder, fast_bytes=ROWS * 32)
            scored.append(layer.tables.tiers.replace().scores)
    assert scored[0] == scored[1] > scored[2] == 0, scored
    # One weight of 1 for each of three ids at most, and one of five samples is positive.
    everywhere = sum(exchange.gather(scored[0], "found"))
    assert 0 < everywhere < 3 * BATCH * hvd.size() * 0.4, everywhere


@case
def a_warm_up_that_does_not_end_places_nothing() -> None:
    callback = EmbeddingPlacement(1000)
    with tempfile.TemporaryDirectory() as folder, contextlib.redirect_stdout(io.StringIO()):
        fitted([callback], folder=folder, fast_bytes=1600)
    assert callback.placement is None


@case
def models_without_tiers_are_refused() -> None:
    for model in (model_of(), keras.Sequential([keras.layers.Dense(1)])):
        model.compile("sgd", "mse")
        with pytest.raises(ValueError, match="with a folder="):
            model.fit(data(1), verbose=0, callbacks=[EmbeddingPlacement(1)])


@case
def ids_beyond_the_vocabulary_are_hashed_and_admitted() -> None:
    """Whole tables and columns of them have one default row each, so that they end alike."""
    options: dict[str, Any] = {
        "hashed": ["sgd", "adam"],
        "min_count": {"adam": 3, "adagrad": 2},
        "row_limit": {"adam": 10},
    }

    def shifted(layer: Any, step: int) -> None:
        ids, weights = as_inputs(drawn(hvd.rank(), step))
        ids["user"] = ids["user"] * 1_000_003 - 77
        with tf.GradientTape() as tape:
            loss = loss_of(layer(ids, weights))
        tape.gradient(loss, layer.trainable_variables)

    ended = [trained(sharding, shifted, **options) for sharding in ("table", "column")]
    check_same(ended[0][0], ended[1][0])
    counted = [layer.tables.statistics() for _, layer in ended]
    everywhere = [sum(exchange.gather(one["rows_dropped"], "found")) for one in counted]
    assert everywhere[1] == hvd.size() * everywhere[0] > 0, everywhere
    by_rows, layer = trained("row", shifted, **options)
    assert all(np.isfinite(one).all() for one in by_rows.values())
    again = DistributedEmbedding.from_config(layer.get_config())
    assert again.storage == Storage(
        0, None, None, frozenset(("adam", "sgd")), options["min_count"], options["row_limit"]
    )

"""Embedding tables in Keras' files, which one rank alone writes, and reads for all."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import keras
import keras_rs
import numpy as np
import pytest
import tensorflow as tf
from embedding_saving import check_equal, slots_of, tables_of
from harness import case

import trepak
import trepak.keras as hvd
from trepak.horovod_ext import exchange
from trepak.tf_plugins.layers import keras_tables
from trepak.tf_plugins.layers.distributed_embedding import DistributedEmbedding

FOLDER = Path(os.environ.get("OUT", "."))
ROWS = {"a": 90, "b": 9}


def configs(rows: dict[str, int] = ROWS, optimizer: Any = None, placement: str = "auto") -> Any:
    """Returns two features: of "a", two ids a sample, of "b" one."""
    found = {}
    for name, shape in (("a", (None, 2)), ("b", (None,))):
        table = keras_rs.layers.TableConfig(
            name,
            rows[name],
            4,
            initializer=keras.initializers.RandomNormal(seed=3),
            optimizer=optimizer or keras.optimizers.Adam(0.1),
            placement=placement,
        )
        found[name] = keras_rs.layers.FeatureConfig(name, table, shape, (None, 4))
    return found


def model_of(layer: Any, train: int = 0) -> Any:
    """Returns a compiled model of a layer, trained for some steps."""
    keras.utils.set_random_seed(2)
    inputs = {
        name: keras.Input(shape, dtype="int64", name=name)
        for name, shape in (("a", [2]), ("b", []))
    }
    embedded = layer(inputs)
    joined = keras.layers.Concatenate()([embedded["a"], embedded["b"]])
    model = keras.Model(inputs, keras.layers.Dense(1)(joined))
    optimizer = hvd.DistributedOptimizer(keras.optimizers.Adam(0.1))
    model.compile(optimizer, loss="mse", jit_compile=False)
    if train:
        fit(model, train)
    return model


def fit(model: Any, steps: int, callbacks: Any = ()) -> None:
    random = np.random.default_rng(hvd.rank())
    rows = 6 * steps
    ids = {"a": random.integers(0, 90, [rows, 2]), "b": random.integers(0, 9, rows)}
    labels = random.uniform(size=[rows, 1]).astype("float32")
    dataset = tf.data.Dataset.from_tensor_slices((ids, labels)).batch(6)
    model.fit(dataset, verbose=0, shuffle=False, callbacks=[*callbacks])


def layer_of(model: Any) -> Any:
    return next(
        one for one in model.layers if isinstance(one, keras_rs.layers.DistributedEmbedding)
    )


def check_same(model: Any, other: Any) -> None:
    """Checks that two models are equal, and stay so when they are trained."""
    for _ in range(2):
        ours, theirs = layer_of(model), layer_of(other)
        for mine, same in zip(slots_of(ours), slots_of(theirs), strict=True):
            np.testing.assert_array_equal(mine, same)
        for mine, same in zip(model.weights, other.weights, strict=True):
            np.testing.assert_array_equal(mine, same, err_msg=mine.path)
        exchange.gather(None, "that all have compared")
        fit(model, 2)
        fit(other, 2)


def meet(name: str) -> Path:
    """Waits for all ranks; returns the path of a file of that name, which all of them see."""
    exchange.gather(None, name)
    return FOLDER / name


@case
def a_model_that_rank_0_has_saved_is_loaded_by_all() -> None:
    model = model_of(DistributedEmbedding(configs(), sharding="row"), train=3)
    path = meet("model.keras")
    if hvd.rank() == 0:
        model.save(path)
    meet("saved")
    plain = keras.models.load_model(path)
    for mine, same in zip(slots_of(layer_of(model)), slots_of(layer_of(plain)), strict=True):
        np.testing.assert_array_equal(mine, same)
    loaded = hvd.load_model(path)
    assert int(layer_of(loaded).tables.optimizers[0].iterations) == 3
    config = layer_of(loaded).get_config()
    assert (config["sharding"], config["tables_in_files"]) == ("row", True)
    check_same(model, loaded)


@case
def weights_that_one_rank_loads_are_all_ranks() -> None:
    for before, after in (("row", "column"), ("column", "table"), ("table", "row")):
        model = model_of(DistributedEmbedding(configs(), sharding=before), train=3)
        path = meet(f"{before}.weights.h5")
        if hvd.rank() == 0:
            model.save_weights(path)
        meet("saved")
        other = model_of(DistributedEmbedding(configs(), sharding=after))
        other.optimizer.build(other.trainable_variables)
        if hvd.rank() == 0:
            other.load_weights(path)
        hvd.broadcast_variables([*other.weights, *other.optimizer.variables], 0)
        check_same(model, other)


@case
def checkpoints_are_written_while_the_others_train() -> None:
    model = model_of(DistributedEmbedding(configs(), sharding="row"))
    path = meet("every.weights.h5")
    saving = [keras.callbacks.ModelCheckpoint(path, save_weights_only=True, save_freq=2)]
    fit(model, 4, saving if hvd.rank() == 0 else [])
    meet("trained")
    other = model_of(DistributedEmbedding(configs(), sharding="column"))
    other.load_weights(path)
    check_equal(tables_of(layer_of(other)), tables_of(layer_of(model)))
    meet("compared")


@case
def a_pipelined_model_is_saved_by_rank_0_alone() -> None:
    """Its last updates are made first, and the others make theirs while rank 0 waits."""
    model = trepak.pipeline(model_of(DistributedEmbedding(configs(), sharding="row")))
    path = meet("pipelined.weights.h5")
    saving = [keras.callbacks.ModelCheckpoint(path, save_weights_only=True, save_freq=3)]
    fit(model, 6, saving if hvd.rank() == 0 else [])
    meet("trained")
    other = model_of(DistributedEmbedding(configs(), sharding="column"))
    other.load_weights(path)
    check_equal(tables_of(layer_of(other)), tables_of(layer_of(model)))
    meet("compared")


@case
def other_tables_are_refused() -> None:
    model = model_of(DistributedEmbedding(configs()), train=1)
    path = meet("tables.weights.h5")
    if hvd.rank() == 0:
        model.save_weights(path)
    meet("saved")
    others = {
        "table 'b' .* 9 rows of 4 numbers.* 8 of 4": configs({"a": 90, "b": 8}),
        "was trained by adam, .* is by sgd": configs(optimizer=keras.optimizers.SGD(0.1)),
    }
    for text, config in others.items():
        other = model_of(DistributedEmbedding(config))
        before = tables_of(layer_of(other))
        with pytest.raises(ValueError, match=text):
            other.load_weights(path)
        check_equal(tables_of(layer_of(other)), before)
    of_kerasrs = model_of(keras_rs.layers.DistributedEmbedding(configs(placement="default_device")))
    path = meet("kerasrs.weights.h5")
    if hvd.rank() == 0:
        of_kerasrs.save_weights(path)
    meet("saved")
    with pytest.raises(ValueError, match="no tables for the layer .*KerasRS"):
        model.load_weights(path)
    meet("refused")


@case
def what_memory_cannot_hold_is_refused() -> None:
    model = model_of(DistributedEmbedding(configs()))
    most, keras_tables.MOST_OF_FREE_MEMORY = keras_tables.MOST_OF_FREE_MEMORY, 1e-9
    path = FOLDER / f"large{hvd.rank()}.weights.h5"
    try:
        with pytest.raises(MemoryError, match=f"rank {hvd.rank()} needs .*save_tables.*tables_in"):
            model.save_weights(path)
        without = model_of(DistributedEmbedding(configs(), tables_in_files=False), train=1)
        without.save_weights(path)
    finally:
        keras_tables.MOST_OF_FREE_MEMORY = most
    before = tables_of(layer_of(without))
    dense = without.layers[-1].get_weights()[0]
    without.layers[-1].set_weights([np.zeros_like(w) for w in without.layers[-1].get_weights()])
    without.load_weights(path)
    np.testing.assert_array_equal(without.layers[-1].get_weights()[0], dense)
    check_equal(tables_of(layer_of(without)), before)
    with pytest.raises(ValueError, match="no tables for the layer"):
        model.load_weights(path)
    meet("refused")


@case
def tables_are_set_by_name() -> None:
    layer = layer_of(model_of(DistributedEmbedding(configs(), sharding="column")))
    values = np.arange(90 * 4, dtype="float32").reshape(90, 4)
    with pytest.raises(ValueError, match="no table 'c'"):
        layer.set_embedding_tables({"c": values})
    with pytest.raises(ValueError, match=r"'a' has the shape \(90, 4\), the values \(89, 4\)"):
        layer.set_embedding_tables({"a": values[1:]})
    meet("refused")
    if hvd.rank() == 0:
        layer.set_embedding_tables({"a": values})
    meet("set")
    np.testing.assert_array_equal(layer.get_embedding_tables()["a"], values)
    meet("read")

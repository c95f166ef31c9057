"""Batches from reader processes: the same training as without them, and no alltoall of ids."""

from __future__ import annotations

from typing import Any

import keras
import keras_rs
import numpy as np
import psutil
from harness import case
from reader_batches import ROWS, STEPS, batches_of

import trepak
import trepak.keras as hvd
from trepak.horovod_ext import alltoall
from trepak.tf_plugins.layers.distributed_embedding import DistributedEmbedding


def compiled(stages: int) -> keras.Model:
    keras.utils.set_random_seed(5)
    inputs = {
        "a": keras.Input([None], dtype="int64", ragged=True, name="a"),
        "b": keras.Input([], dtype="int64", name="b"),
        "numbers": keras.Input([3], name="numbers"),
    }
    configs = {}
    for name, optimizer in (
        ("a", keras.optimizers.Adam(0.05)),
        ("b", keras.optimizers.Adagrad(0.2)),
    ):
        table = keras_rs.layers.TableConfig(name, ROWS[name], 4, optimizer=optimizer)
        shape = (None, None) if name == "a" else (None,)
        configs[name] = keras_rs.layers.FeatureConfig(name, table, shape, (None, 4))
    # Ids that the model computes are computed in the readers, too.
    rows = DistributedEmbedding(configs, name="rows")({"a": inputs["a"], "b": 6 - inputs["b"]})
    joined = keras.layers.Concatenate()([rows["a"], rows["b"], inputs["numbers"]])
    model = keras.Model(inputs, keras.layers.Dense(1)(keras.layers.Dense(5, "tanh")(joined)))
    optimizer = hvd.DistributedOptimizer(keras.optimizers.SGD(0.01))
    model.compile(optimizer, loss="mse", jit_compile=False)
    return trepak.pipeline(model, stages)


def state_of(model: keras.Model) -> list[Any]:
    tables = model.get_layer("rows").get_embedding_tables()
    return [*model.get_weights(), *(table.numpy() for _, table in sorted(tables.items()))]


def trained_without(stages: int, epochs: int) -> list[Any]:
    """Each rank has as many batches as the one with the fewest."""
    model = compiled(stages)
    fewest = STEPS - 2 * (hvd.size() > 1)
    mine = batches_of(hvd.rank(), hvd.size()).take(fewest)
    model.fit(mine, epochs=epochs, verbose=0)
    return state_of(model)


def readers_of_this_job() -> list[psutil.Process]:
    found = psutil.Process().children(recursive=True)
    return [one for one in found if "trepak.tf_plugins.data.reader" in one.cmdline()]


@case
def one_stage_with_readers_changes_nothing() -> dict[str, Any]:
    """Two readers by turns, two epochs, and one that was left early."""
    model = compiled(1)
    batches = trepak.read_ahead(model, batches_of, readers=2)
    assert len(readers_of_this_job()) == (2 if hvd.rank() == 0 else 0)
    before = alltoall.statistics()["exchanges"] if alltoall.statistics() else 0
    model.fit(batches, epochs=2, verbose=0)
    steps = 2 * (STEPS - 2 * (hvd.size() > 1))
    exchanges = alltoall.statistics()["exchanges"] - before
    assert exchanges == 2 * steps, f"rows and gradients, and no ids: {exchanges}"
    for with_readers, plain in zip(state_of(model), trained_without(0, 2), strict=True):
        np.testing.assert_array_equal(with_readers, plain)
    next(iter(batches))
    assert sum(1 for _ in batches) == steps / 2, "an epoch begins anew"
    return {"exchanges": exchanges}


@case
def four_stages_with_readers_are_those_without() -> None:
    model = compiled(4)
    model.fit(trepak.read_ahead(model, batches_of), epochs=2, verbose=0)
    for with_readers, plain in zip(state_of(model), trained_without(4, 2), strict=True):
        np.testing.assert_allclose(with_readers, plain, rtol=1e-6, atol=1e-7)

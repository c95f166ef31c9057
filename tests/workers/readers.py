"""Batches from reader processes: the same training as without them, and no alltoall of ids."""

from __future__ import annotations

from typing import Any

import keras
import keras_rs
import numpy as np
import psutil
import pytest
from harness import case
from reader_batches import FEWEST, ROWS, batches_of, fails_in_readers

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


def check_equal(one: keras.Model, other: keras.Model, **tolerances: float) -> None:
    for mine, its in zip(state_of(one), state_of(other), strict=True):
        np.testing.assert_allclose(mine, its, **{"rtol": 0, "atol": 0, **tolerances})


def check_that_readers_change_nothing(readers: int) -> tuple[keras.Model, Any, int]:
    """Returns a model, its batches from readers, and how many alltoalls its training took."""
    model, without = compiled(1), compiled(0)
    batches = trepak.read_ahead(model, batches_of, readers)
    # Without readers, too, an epoch ends for all ranks when the first one has no more.
    mine = batches_of(hvd.rank(), hvd.size()).take(FEWEST)
    before = alltoall.statistics()["exchanges"] if alltoall.statistics() else 0
    callbacks = [hvd.callbacks.BroadcastGlobalVariablesCallback(0)]
    model.fit(batches, epochs=2, callbacks=callbacks, verbose=0)
    exchanges = alltoall.statistics()["exchanges"] - before
    without.fit(mine, epochs=2, verbose=0)
    check_equal(model, without)
    next(iter(batches))
    lengths = [sum(1 for _ in batches) for _ in range(2)]
    assert lengths == [FEWEST - 1, FEWEST], "an epoch that was left goes on"
    for one, data in ((model, batches), (without, mine)):
        trepak.pipeline(one, stages=4).fit(data, epochs=2, verbose=0)
    check_equal(model, without, rtol=1e-6, atol=1e-7)
    return model, batches, exchanges


@case
def readers_change_nothing_and_no_ids_travel() -> None:
    """Two readers by turns; with one stage, then with four."""
    _, _, exchanges = check_that_readers_change_nothing(readers=2)
    assert exchanges == 2 * 2 * FEWEST, f"rows and gradients of 2 epochs alone: {exchanges}"
    if hvd.rank() == 0:
        running = psutil.Process().children(recursive=True)
        assert sum("trepak.tf_plugins.data.reader" in one.cmdline() for one in running) == 2


@case
def what_cannot_be_read_ahead_is_refused() -> None:
    model = compiled(1)
    with pytest.raises(ValueError, match="at least 1"):
        trepak.read_ahead(model, batches_of, readers=0)
    with pytest.raises(RuntimeError, match=r"reader 0.*can't begin(.|\n)*no such file of clicks"):
        trepak.read_ahead(model, fails_in_readers)
    with pytest.raises(ValueError, match="needs a pipeline"):
        trepak.read_ahead(trepak.pipeline(model, stages=0), batches_of)

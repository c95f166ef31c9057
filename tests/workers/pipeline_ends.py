"""Where Sven's pipeline ends, for a while or for good: all updates are made, by all ranks."""

from __future__ import annotations

import gc
import json
import tempfile
import weakref
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf
from harness import case
from keras_rs.layers import FeatureConfig, TableConfig
from pipeline import BATCH, STEPS, compiled, fit, layer_of, model_with_embeddings, samples

import trepak
import trepak.keras as hvd
from trepak.layers import DistributedEmbedding
from trepak.tf_plugins.model.pipeline_graphs import PERMITS


@case
def uneven_data_ends_on_all_ranks_together() -> None:
    for stages, callbacks in (
        (1, []),
        (4, []),
        (4, [hvd.callbacks.BroadcastGlobalVariablesCallback(0)]),
    ):
        model = compiled(stages)
        ids, labels = samples(hvd.rank(), 4 + 2 * hvd.rank())
        dataset = tf.data.Dataset.from_tensor_slices((ids, labels)).batch(BATCH)
        dataset = dataset.filter(lambda *_: True)  # of unknown length
        model.fit(dataset, epochs=2, callbacks=callbacks, verbose=0)
        assert layer_of(model).tables.statistics()["updates"] == 2 * 4


@case
def everything_is_updated_before_somebody_looks() -> None:
    model = compiled(4)
    ids, labels = samples(hvd.rank())

    class Looks(keras.callbacks.Callback):
        seen: list[tuple[int, int]] = []

        def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
            self.seen.append((epoch, layer_of(model).tables.statistics()["updates"]))

    fit(model, epochs=2, callbacks=[Looks()], validation_data=(ids, labels))
    assert Looks.seen == [(0, STEPS), (1, 2 * STEPS)]
    part = {name: one[:BATCH] for name, one in ids.items()}
    model.train_on_batch(part, labels[:BATCH])
    assert layer_of(model).tables.statistics()["updates"] == 2 * STEPS + 1
    model.fit(
        tf.data.Dataset.from_tensor_slices((ids, labels)).repeat().batch(BATCH),
        steps_per_epoch=5,
        epochs=2,
        verbose=0,
    )
    assert layer_of(model).tables.statistics()["updates"] == 2 * STEPS + 1 + 10


@case
def one_rank_alone_may_look_between_two_steps() -> None:
    """The gradients that its flush waits for have left the others in the step before."""
    model = compiled(4)

    class Looks(keras.callbacks.Callback):
        def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
            if hvd.rank() == 0:
                self.model.get_weights()
                assert layer_of(self.model).tables.statistics()["updates"] == batch + 1
            hvd.barrier()

    fit(model, callbacks=[Looks()])
    assert layer_of(model).tables.statistics()["updates"] == STEPS


@case
def a_pipeline_that_is_taken_off_makes_its_last_update() -> None:
    class Stops(keras.callbacks.Callback):
        def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
            if batch == 1:
                raise KeyError("enough")

    model = compiled(4)
    with pytest.raises(KeyError, match="enough"):
        fit(model, callbacks=[Stops()])
    assert layer_of(model).tables.statistics()["updates"] == 1
    trepak.pipeline(model, 0)
    assert layer_of(model).tables.statistics()["updates"] == 2


@case
def gradients_of_rows_leave_when_all_ranks_have_updated() -> None:
    """They would hold up whoever is still in the reduction of the dense ones."""
    with tempfile.TemporaryDirectory() as mine:
        folder = hvd.broadcast_object(mine)
        fit(compiled(4), callbacks=[hvd.callbacks.TimelineCallback(folder)])
        hvd.barrier()
        begun = [_begun(Path(folder) / f"rank-{rank}.json") for rank in range(hvd.size())]
        hvd.barrier()
    for number in range(STEPS):
        told = [one["updated", number] for one in begun]
        assert all(one["gradients", number] >= max(told) for one in begun), (number, begun)


def _begun(file: Path) -> dict[tuple[str, int], float]:
    """Returns when this rank's part of each alltoall was sent, on the clock of all ranks here."""
    return {
        (event["name"].rpartition(": ")[2], event["args"]["number"]): event["ts"]
        for event in json.loads(file.read_text())
        if event["ph"] == "X" and event["name"].startswith("embeddings")
    }


@case
def tables_go_with_their_model() -> None:
    for stages in (0, 1, 4):
        model = compiled(stages)
        fit(model)
        tables = weakref.ref(layer_of(model).tables)
        trepak.pipeline(model, 0)
        del model
        keras.backend.clear_session()
        gc.collect()
        assert tables() is None, stages


class Subclassed(keras.Model):
    """A model whose layers are built when it is called first."""

    def __init__(self) -> None:
        super().__init__()
        table = TableConfig("item", 50, 4, optimizer=keras.optimizers.SGD(0.1))
        self.rows = DistributedEmbedding({"item": FeatureConfig("item", table, (None,), (None, 4))})
        self.dense = keras.layers.Dense(1)

    def call(self, ids: Any) -> Any:
        return self.dense(self.rows({"item": ids})["item"])


@case
def a_model_that_is_not_built_is_when_it_trains() -> None:
    for stages in (1, 4):
        model = Subclassed()
        model.compile(hvd.DistributedOptimizer(keras.optimizers.SGD(0.1)), loss="mse")
        ids = np.random.default_rng(hvd.rank()).integers(50, size=[4 * BATCH])
        trepak.pipeline(model, stages)
        model.fit(ids, np.ones([4 * BATCH, 1], "float32"), batch_size=BATCH, verbose=0)
        assert model.rows.tables.statistics()["updates"] == 4


@case
def a_frozen_layer_is_not_trained() -> None:
    for stages in (0, 1, 4):
        model = model_with_embeddings()
        layer_of(model).trainable = False
        model.compile(hvd.DistributedOptimizer(keras.optimizers.SGD(0.1)), loss="mse")
        trepak.pipeline(model, stages)
        fit(model)
        assert layer_of(model).tables.statistics()["updates"] == 0, stages


@case
def optimizers_that_rows_cannot_have_are_refused() -> None:
    scaled = keras.optimizers.LossScaleOptimizer(keras.optimizers.SGD(0.1))
    for optimizer, message in (
        (hvd.DistributedOptimizer(scaled), "LossScaleOptimizer"),
        (hvd.DistributedOptimizer(keras.optimizers.SGD(0.1), sync=trepak.RNA()), "sync=trepak.BSP"),
    ):
        model = model_with_embeddings()
        model.compile(optimizer, loss="mse")
        with pytest.raises(ValueError, match=message):
            fit(model)


@case
def wrong_models_are_refused() -> None:
    with pytest.raises(ValueError, match="stages must be one of"):
        trepak.pipeline(model_with_embeddings(), 3)
    plain = keras.Sequential([keras.Input([2]), keras.layers.Dense(1)])
    with pytest.raises(ValueError, match="DistributedEmbedding"):
        trepak.pipeline(plain)
    assert PERMITS == 3

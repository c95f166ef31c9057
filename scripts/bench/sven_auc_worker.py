"""What staleness costs: models of clicks trained by three schedules, in one process.

Which updates a look-up misses depends on the schedule alone, and on no clock, so that one process
can train as many would: a batch is that of all ranks.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any

import trepak  # before Keras: it keeps TensorFlow's start-up noise off the terminal

# isort: split
import keras
import numpy as np
import tensorflow as tf

from trepak.layers import DistributedEmbedding
from trepak.models.auc import auc, best_auc
from trepak.models.click_features import feature_configs
from trepak.models.clicks import ClickStream, criteo_vocabularies
from trepak.models.dcn import dcn
from trepak.models.deepfm import deepfm
from trepak.models.wide_deep import wide_deep
from trepak.scripts.bench import rank
from trepak.scripts.bench.sven_study import ASYNCHRONOUS, PIPELINE, Study
from trepak.tf_plugins.layers.embedding_schedule import scheduled

# What models, data and optimizers are; see `trepak train ctr`, whose smaller layers these are.
_DIMENSION, _UNITS, _SCALE = 16, (128, 64), 0.01
_RATE, _TABLES_RATE = 0.002, 0.004
_TESTED_BATCHES = 50


def measure(study: Study) -> list[dict[str, Any]]:
    """Returns a row of each training."""
    stream = ClickStream(criteo_vocabularies(_SCALE), seed=study.seed)
    held_out = stream.samples(np.arange(study.held_out))
    best = best_auc(held_out.probabilities)
    tested = stream.dataset(study.held_out, study.held_out // _TESTED_BATCHES)
    rows = []
    for schedule in study.schedules:
        model, embedding = _build(study, stream)
        batches = stream.dataset(study.samples, study.batch, first=study.held_out)
        if schedule == ASYNCHRONOUS:
            train_asynchronously(model, embedding, batches, study.workers)
            most_stale = study.workers - 1
        else:
            trepak.pipeline(model, 4 if schedule == PIPELINE else 0)
            model.fit(batches, verbose=0)
            most_stale = embedding.tables.permits()["most_stale"]
        scores = model.predict(tested.map(lambda inputs, _: inputs), verbose=0)
        rows.append(
            {
                "model": study.model,
                "batch": study.batch,
                "seed": study.seed,
                "schedule": schedule,
                "rate": study.rate,
                "auc": auc(scores, held_out.labels),
                "best_auc": best,
                "most_stale": most_stale,
            }
        )
        keras.backend.clear_session()
    return rows


def _build(study: Study, stream: ClickStream) -> tuple[Any, Any]:
    """Returns a compiled model, and its layer of embeddings."""
    keras.utils.set_random_seed(study.seed)
    configs = feature_configs(
        stream.vocabularies,
        _DIMENSION,
        None,
        linear=study.model != "dcn",
        optimizer=keras.optimizers.Adam(study.rate * _TABLES_RATE),
    )
    embedding = DistributedEmbedding(configs)
    make: Callable[..., Any] = {"wide_deep": wide_deep, "deepfm": deepfm, "dcn": dcn}[study.model]
    options = {"dropout": 0.0} if study.model == "deepfm" else {}
    model = make(embedding, stream.vocabularies, units=_UNITS, **options)
    model.compile(
        keras.optimizers.Adam(study.rate * _RATE),
        loss=keras.losses.BinaryCrossentropy(from_logits=True),
    )
    return model, embedding


def train_asynchronously(model: Any, embedding: Any, batches: Any, workers: int) -> None:
    """Trains as asynchronous servers do whose workers are all equally fast.

    Each worker computes with the weights that it found when it began, so that between them and its
    update lie those of the other workers: a gradient is of weights that have missed `workers` - 1
    updates, dense ones as well as rows. With one worker this is synchronous training.

    Args:
        model: compiled, with a Keras optimizer of its own.
        embedding: its layer of embeddings.
        batches: of inputs and labels.
        workers: at least 1.
    """
    under_way: deque[tuple[Any, Any]] = deque()

    @tf.function(reduce_retracing=True)
    def compute(inputs: Any, labels: Any) -> tuple[Any, Any]:
        found: list[Any] = []
        with scheduled([embedding], [_Stale(found)]), tf.GradientTape() as tape:
            loss = model.compute_loss(inputs, labels, model(inputs, training=True))
        gradients = tape.gradient(loss, [one.value for one in model.trainable_variables])
        return gradients, found

    @tf.function(reduce_retracing=True)
    def update(gradients: Any, found: Any) -> None:
        for one in found:
            embedding.tables.update(embedding.tables.send_back(one))
        model.optimizer.apply(gradients, model.trainable_variables)

    model.optimizer.build(model.trainable_variables)
    for inputs, labels in batches:
        under_way.append(compute(inputs, labels))
        if len(under_way) == workers:
            update(*under_way.popleft())
    while under_way:
        update(*under_way.popleft())


class _Stale:
    """A step looks its rows up at once, and leaves their update to a later one."""

    def __init__(self, gradients: list[Any]) -> None:
        self._gradients = gradients

    def look_up(self, tables: Any, inputs: Any, anchor: Any) -> list[Any]:
        """Returns the rows as the updates so far have left them."""
        answered = tables.answer(tables.ask(inputs))
        return list(tables.combine(answered, inputs, anchor, self._gradients.append))


if __name__ == "__main__":
    rank.main(measure)

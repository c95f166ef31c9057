"""Trains a model of clicks whose embedding tables lie on all ranks: what `trepak train ctr` starts.

    horovodrun -np 2 python -m trepak.scripts.examples.train_ctr --model dcn
    python -m trepak.scripts.examples.train_ctr

Every rank trains on its share of each batch. Look-ups and updates of rows go from rank to rank; the
gradients of the dense layers are averaged.
"""

from __future__ import annotations

import argparse
import functools
import sys
import warnings
from typing import Any

import trepak
import trepak.keras as hvd  # before Keras: it keeps TensorFlow's start-up noise off the terminal

# isort: split
import keras

from trepak.layers import DistributedEmbedding
from trepak.models.click_features import feature_configs
from trepak.models.dcn import dcn
from trepak.models.deepfm import deepfm
from trepak.models.wide_deep import wide_deep
from trepak.scripts.entrance import run_command
from trepak.scripts.examples import ctr_data, ctr_options
from trepak.scripts.examples.ctr_progress import Progress
from trepak.scripts.examples.ctr_report import report

_LEARNING_RATE, _TABLES_LEARNING_RATE = 0.002, 0.004
_UNITS = (128, 64)  # smaller than the papers', for two cores


def main(arguments: list[str] | None = None) -> int:
    """Trains and reports; returns the exit code."""
    return run_command(functools.partial(_main, arguments))


def _main(arguments: list[str] | None) -> int:
    options = ctr_options.parse(arguments)
    hvd.init()
    ctr_options.check(options, hvd.size())
    keras.utils.set_random_seed(options.seed)

    data = ctr_data.load(options, hvd.rank(), hvd.size())
    model, embedding = build(options, data)
    model.compile(
        optimizer=hvd.DistributedOptimizer(keras.optimizers.Adam(_LEARNING_RATE)),
        loss=keras.losses.BinaryCrossentropy(from_logits=True),
    )
    trepak.pipeline(model, options.stages)
    if hvd.rank() == 0:
        print(embedding.tables.plan, flush=True)

    # Keras says so of all data whose length it does not know.
    warnings.filterwarnings("ignore", "Your input ran out of data")
    progress = Progress(embedding, data, options)
    with ctr_data.malformed_lines():
        model.fit(
            data.train,
            epochs=options.epochs,
            steps_per_epoch=data.steps,
            shuffle=False,  # the data are
            callbacks=[
                hvd.callbacks.BroadcastGlobalVariablesCallback(0),
                hvd.callbacks.MetricAverageCallback(),
                progress,
            ],
            verbose=0,
        )
    report(model, embedding, progress, options)
    return 0


def build(options: argparse.Namespace, data: ctr_data.Data) -> tuple[Any, Any]:
    """Returns the model, and its layer of embeddings."""
    configs = feature_configs(
        data.vocabularies,
        options.dimension,
        options.batch_size // hvd.size(),
        linear=options.model != "dcn",
        lengths=data.lengths,
        optimizer=keras.optimizers.Adam(_TABLES_LEARNING_RATE),
    )
    embedding = DistributedEmbedding(
        configs, sharding=_sharding(configs, options.sharding), tables_in_files=False
    )
    common: dict[str, Any] = {"numerical": data.numerical, "lengths": data.lengths, "units": _UNITS}
    if options.model == "deepfm":
        # Masks that ranks draw would make their number change the result.
        return deepfm(embedding, data.vocabularies, dropout=0.0, **common), embedding
    make: Any = {"wide_deep": wide_deep, "dcn": dcn}[options.model]
    return make(embedding, data.vocabularies, **common), embedding


def _sharding(configs: dict[str, Any], chosen: str) -> dict[str, str]:
    """Returns how tables are cut; those that have too few columns to be cut so are "auto"."""
    tables = (config.table for config in configs.values())
    least = hvd.size() if chosen == "column" else 1
    return {table.name: chosen for table in tables if table.embedding_dim >= least}


if __name__ == "__main__":
    sys.exit(main())

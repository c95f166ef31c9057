"""A table of twice what a process may have of memory: it trains in a file, and only there."""

from __future__ import annotations

import json
import os
import resource
import tempfile
from pathlib import Path
from typing import Any

import keras
import keras_rs
import numpy as np
import pytest
import tensorflow as tf

import trepak.keras as hvd
from trepak.layers import DistributedEmbedding

COLUMNS, MEMORY, BATCH = 64, 256 << 20, 1 << 13


def memory_of_process() -> int:
    """Returns what counts towards RLIMIT_DATA: memory of its own that can be written to."""
    fields = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    return int(fields["VmData"].split()[0]) << 10


def layer_of(size: int, initializer: Any, **options: Any) -> DistributedEmbedding:
    table = keras_rs.layers.TableConfig(
        "huge",
        size // 4 // COLUMNS,
        COLUMNS,
        initializer=initializer,
        optimizer=keras.optimizers.SGD(1.0),
    )
    config = keras_rs.layers.FeatureConfig("huge", table, (None,), (None, COLUMNS))
    return DistributedEmbedding(config, **options)


def train(layer: DistributedEmbedding, ids: Any) -> Any:
    """Takes one from each number of these rows; returns what they were."""
    with tf.GradientTape() as tape:
        rows = layer(tf.constant(ids))
        loss = tf.reduce_sum(rows)
    tape.gradient(loss, layer.trainable_variables)
    return rows.numpy()


def main() -> None:
    """Trains with memory for half of the table at most, and says how it went."""
    hvd.init()
    train(layer_of(1 << 20, "zeros"), [1])  # all threads are there after that
    limit = memory_of_process() + MEMORY
    resource.setrlimit(resource.RLIMIT_DATA, (limit, resource.RLIM_INFINITY))
    size = 2 * limit
    with pytest.raises(tf.errors.ResourceExhaustedError) as error:
        layer_of(size, "zeros").build((None,))
    random = np.random.default_rng(1)
    with tempfile.TemporaryDirectory() as folder:
        options = {"folder": folder, "fast_bytes": MEMORY // 8}
        # As large as two limits: disk is taken where rows are touched.
        layer = layer_of(size, "zeros", **options)
        layer.build((None,))
        ids = random.choice(size // 4 // COLUMNS, 200, replace=False)
        assert (train(layer, ids) == 0).all()
        assert (train(layer, ids) == -1).all()
        sparse = layer.tables.statistics()
        del layer
        # Twice as large as the memory that is left, with all rows drawn, and half of them trained.
        layer = layer_of(2 * MEMORY, keras.initializers.RandomUniform(0.5, 1, seed=1), **options)
        layer.build((None,))
        rows = 2 * MEMORY // 4 // COLUMNS
        layer.tables.tiers.track("lfu")
        for first in range(0, rows // 2, BATCH):
            train(layer, np.arange(first, min(rows // 2, first + BATCH)))
        layer.tables.tiers.place()
        first, last = train(layer, [5, rows // 2 - 1]), train(layer, [rows // 2, rows - 1])
        assert first.max() < 0 < last.min(), (first, last)
        full = layer.tables.statistics()
    found = {"size": size, "error": str(error.value), "sparse": sparse, "full": full}
    (Path(os.environ["OUT"]) / "memory.json").write_text(json.dumps(found))


if __name__ == "__main__":
    main()

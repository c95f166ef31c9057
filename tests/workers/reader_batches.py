"""Batches that readers make: they import this, and so it imports little."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
import tensorflow as tf

BATCH, STEPS = 6, 5
FEWEST = 3  # of a rank, where there are several
ROWS = {"a": 150, "b": 7}


def batches_of(rank: int, size: int) -> tf.data.Dataset:
    """Ragged and dense ids, drawn by Python; rank 1 has two batches less."""

    def drawn(step: Any) -> Any:
        random = np.random.default_rng([rank, step])
        ids = random.geometric(0.05, [BATCH, 3]).astype("int64")
        return ids % ROWS["a"], ids[:, 0] % ROWS["b"], random.uniform(size=[BATCH, 1])

    def batch(step: Any) -> Any:
        a, b, labels = tf.numpy_function(drawn, [step], [tf.int64, tf.int64, tf.float64])
        a, b = tf.ensure_shape(a, [BATCH, 3]), tf.ensure_shape(b, [BATCH])
        ragged = tf.RaggedTensor.from_tensor(a, lengths=tf.clip_by_value(b, 1, 3))
        labels = tf.ensure_shape(tf.cast(labels, tf.float32), [BATCH, 1])
        return {"a": ragged, "b": b, "numbers": tf.cast(a, tf.float32)}, labels

    return tf.data.Dataset.range(FEWEST if rank == 1 else STEPS).map(batch)


def fails_in_readers(rank: int, size: int) -> tf.data.Dataset:
    if sys.argv[0].endswith("data/reader.py"):
        raise FileNotFoundError("there is no such file of clicks")
    return batches_of(rank, size)

"""How many samples a training step has, of whatever a batch is made."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from trepak.tf_plugins.model import counted_samples

BATCHES: dict[str, tuple[Any, int]] = {
    "tensors": ((tf.zeros([3, 2]), tf.zeros([3])), 3),
    "dict, no labels": (({"b": tf.zeros([4, 1]), "a": tf.zeros([4])}, None, None), 4),
    "nothing first": ((None, tf.zeros([2, 2])), 2),
    "ragged": ((tf.ragged.constant([[1], [2, 3], []]), tf.zeros([3])), 3),
    "sparse": ((tf.sparse.from_dense(np.eye(5)), tf.zeros([5])), 5),
    "scalar": ((tf.constant(1.0),), 1),
    "none": ((), 1),
}


@pytest.mark.parametrize("name", BATCHES)
def test_a_batch_is_as_long_as_its_first_tensor(name: str) -> None:
    batch, samples = BATCHES[name]
    assert int(counted_samples._samples_of(batch)) == samples

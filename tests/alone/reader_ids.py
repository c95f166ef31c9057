"""What readers may compute of batches: the same as the ranks do."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import keras
import keras_rs
import pytest
import tensorflow as tf

from trepak.tf_plugins.layers.distributed_embedding import DistributedEmbedding
from trepak.tf_plugins.model.look_ups import ids_graph

ROWS = 20


def looks_up(ids_of: Callable[[Any], Any]) -> Any:
    """A model that looks up what a function makes of its input."""
    table = keras_rs.layers.TableConfig("t", ROWS, 2, optimizer="sgd")
    feature = keras_rs.layers.FeatureConfig("f", table, (None,), (None, 2))
    ids = keras.Input([], dtype="int64")
    made = keras.layers.Lambda(ids_of, output_shape=())(ids)
    return keras.Model(ids, DistributedEmbedding({"f": feature})({"f": made})["f"])


@tf.function
def shifted(ids: Any) -> Any:
    return ids + tf.random.uniform([], 0, 2, tf.int64)


def test_ids_must_be_the_same_in_readers_and_ranks() -> None:
    spec = tf.TensorSpec([None], tf.int64)

    def checked(ids: Any) -> Any:
        tf.debugging.assert_less(ids, tf.constant(ROWS, tf.int64))
        return tf.cond(tf.size(ids) > 1, lambda: ids, lambda: ids + 0)

    assert ids_graph(looks_up(checked), (spec, spec)).features == ((1,),)
    for name, one in (
        ("RandomShuffle", tf.random.shuffle),
        ("RandomUniformInt", shifted),
        ("Timestamp", lambda ids: ids + tf.cast(tf.timestamp(), tf.int64)),
    ):
        with pytest.raises(ValueError, match=f"not be the same .* because of {name}"):
            ids_graph(looks_up(one), (spec, spec))

"""A dataset that ends on all ranks together."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from trepak.horovod_ext import basics, collectives


def even_batches(
    dataset: tf.data.Dataset, process_set: basics.ProcessSet = basics.global_process_set
) -> tf.data.Dataset:
    """Returns the dataset, cut where the first rank's ends.

    For datasets whose number of batches is not known beforehand; where it is, `fit` with
    BroadcastGlobalVariablesCallback agrees on it without this. Costs one small allreduce per batch.

    Args:
        dataset: this rank's batched dataset.
        process_set: the ranks that consume their datasets in step.
    """
    if process_set.size() == 1:
        return dataset
    marked = dataset.map(lambda *batch: (batch, True))
    end = tf.data.Dataset.from_tensors(_empty_like(dataset.element_spec)).map(
        lambda *batch: (batch, False)
    )

    def all_have_one(_: Any, has_one: Any) -> Any:
        verdict = collectives.allreduce(
            tf.cast(has_one, tf.int32),
            op=collectives.Min,
            name="trepak_even_batches",
            ignore_name_scope=True,
            process_set=process_set,
        )
        return tf.equal(verdict, 1)

    cut = marked.concatenate(end).take_while(all_have_one)
    single = not isinstance(dataset.element_spec, tuple)
    return cut.map(lambda batch, _: batch[0] if single else batch)


def _empty_like(spec: Any) -> Any:
    """Returns an element of the spec's structure, with 0 for every unknown dimension."""

    def zeros(one: tf.TensorSpec) -> Any:
        return tf.zeros([d or 0 for d in one.shape], one.dtype)

    return tf.nest.map_structure(zeros, spec)

"""This rank's samples and labels, as the chunks of its T-1 tokens have them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import keras
import tensorflow as tf
from keras.src.trainers.data_adapters import data_adapter_utils

from trepak.tf_plugins.fela.cuts import Crossing
from trepak.tf_plugins.fela.partition import Partition


class BatchFormat:
    """How what `fit` gives a step lies in chunks.

    Attributes:
        inputs: specs of the samples' tensors, without the batch.
        labels: specs of the tensors of labels and sample weights; none before the first batch.
        form: of each of these its place in what `fit` was given, dtype and shape, in their order;
            ranks read each other's labels by it.
    """

    def __init__(self, partition: Partition) -> None:
        """Makes it for a model in sub-models."""
        self._partition = partition
        self._inputs = partition.sub_models[0].inputs
        self.inputs = specs_of(self._inputs)
        self.labels: list[tf.TensorSpec] = []
        self._structure: Any = None  # of labels and sample weights
        self.form: list[str] = []

    def split(self, data: Any) -> tuple[list[Any], list[Any]]:
        """Returns the tensors of a batch's samples, and of its labels.

        Raises:
            ValueError: the batch's labels have other dtypes, shapes or places than those before.
        """
        x, y, sample_weight = data_adapter_utils.unpack_x_y_sample_weight(data)
        pairs = zip(self._partition.flat(x), self._inputs, strict=True)
        inputs = [keras.ops.convert_to_tensor(one, dtype=into.dtype) for one, into in pairs]
        given = [
            ("/".join([name, *map(str, path)]), None if one is None else tf.convert_to_tensor(one))
            for name, part in (("y", y), ("sample_weight", sample_weight))
            for path, one in keras.tree.flatten_with_path(part)
        ]
        labels = [one for _, one in given if one is not None]
        form = [f"{place}: {_text(one)}" for place, one in given]
        if self._structure is None:
            self._structure, self.form = (y, sample_weight), form
            self.labels = [tf.TensorSpec(one.shape[1:], one.dtype) for one in labels]
        if form != self.form:
            raise ValueError(
                f"a batch's labels and sample weights are {form}, and those of the first one "
                f"were {self.form}: give all batches the same dtypes and shapes, in one order."
            )
        return inputs, labels

    def forget(self) -> None:
        """Lets the next batch have other labels."""
        self._structure, self.form, self.labels = None, [], []

    def pack_labels(self, tensors: Sequence[Any]) -> Any:
        """Returns labels and sample weights in the structure that `fit` was given them in."""
        left = iter(tensors)
        flat = [None if one is None else next(left) for one in keras.tree.flatten(self._structure)]
        return keras.tree.pack_sequence_as(self._structure, flat)


def _text(tensor: Any) -> str:
    return "None" if tensor is None else f"{tensor.dtype.name}{tensor.shape[1:].as_list()}"


def specs_of(crossing: Sequence[Crossing]) -> list[tf.TensorSpec]:
    """Returns the specs of what crosses a cut, without the batch."""
    return [tf.TensorSpec(one.shape, one.dtype) for one in crossing]


def float_specs_of(crossing: Sequence[Crossing]) -> list[tf.TensorSpec]:
    """Returns those of what has gradients."""
    return [spec for spec in specs_of(crossing) if spec.dtype.is_floating]

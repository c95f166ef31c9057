"""Epochs for ranks that go at their own pace: so many samples of all of them together."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable
from typing import Any

import tensorflow as tf
from keras.src.trainers.epoch_iterator import EpochIterator

from trepak.ops.loader import load
from trepak.tf_plugins.model.keras_changes import change

_MARK = "_trepak_global_epochs"
_numbers = itertools.count(1)


def global_epochs(dataset: tf.data.Dataset, samples: int) -> tf.data.Dataset:
    """Returns a dataset whose epochs end on all ranks together.

    An epoch lasts until all ranks together have taken `samples`: a fast rank takes more of them
    than a slow one, and nobody waits for a number of steps of its own. (With rounds, as RNA's,
    these are the samples of the rounds that this rank has applied; with `sync=` ElasticBSP, SSP,
    ASP or ADPSGD, those that it has heard of.) An epoch goes on in the given dataset where the one
    before has stopped, so that a slow rank comes to see all of it too; at its end the dataset
    starts anew, so it should shuffle.

    Leave `steps_per_epoch` out of `fit`. Transform the dataset before this and not after: what is
    prefetched after it is trained with when the epoch is over, while others wait. Where gradients
    are reduced in every step (`sync=trepak.BSP()`), epochs of a given length need no such wrapper,
    and this one never ends.

    Batches have an unknown size while a step is traced: use `tf.shape(x)[0]`, not `x.shape[0]`.

    Args:
        dataset: this rank's batches; each a tensor, or a nest of them, with samples in the first
            dimension. It needs at least one, or its first step fails.
        samples: of an epoch.

    Raises:
        ValueError: `samples` is not positive, or the dataset is empty and knows it.
    """
    if samples < 1:
        raise ValueError(f"an epoch must have at least one sample, got {samples}.")
    if dataset.cardinality() == 0:
        raise ValueError("the dataset is empty: global_epochs needs at least one batch.")
    number = next(_numbers)
    # A tuner's thread would hold up whoever ends an iterator until it wakes, up to a minute
    # (TensorFlow 2.21; seen as 2 to 26 s on some ranks). An epoch's goes when the next one's comes.
    options = tf.data.Options()
    options.autotune.enabled = False
    batches = iter(dataset.repeat().with_options(options))

    def deal(_: Any) -> Any:
        batch = next(batches)
        size = tf.shape(tf.nest.flatten(batch)[0], out_type=tf.int64)[0]
        with tf.control_dependencies([load().trepak_deal(size)]):
            return tf.nest.map_structure(_of_any_size, batch)

    def epoch(end: Any) -> tf.data.Dataset:
        numbers = tf.data.Dataset.counter()
        return numbers.take_while(lambda _: load().trepak_epoch_goes_on(end)).map(deal)

    begin = tf.data.Dataset.range(1).map(
        lambda _: load().trepak_end_of_epoch(dataset=number, samples=samples)
    )
    epochs = begin.flat_map(epoch).with_options(options)
    return of_any_length(epochs)


def of_any_length(dataset: tf.data.Dataset) -> tf.data.Dataset:
    """Returns a dataset of which `fit` expects no number of steps, even after an epoch.

    The dataset is the given one, which can't tell its number itself.
    """
    setattr(dataset, _MARK, True)
    _let_epochs_differ()
    return dataset


def _of_any_size(tensor: Any) -> Any:
    """Returns the tensor as one whose batch size is not known before a step runs.

    Keras begins a step to find out that an epoch has ended. Its metrics would count such a step's
    samples too if their number did not depend on the batch.
    """
    copied = tf.identity(tensor)
    if not isinstance(tensor, tf.Tensor) or not tensor.shape.rank:
        return copied
    return tf.compat.v1.placeholder_with_default(copied, [None, *tensor.shape[1:]])


@functools.cache
def _let_epochs_differ() -> None:
    """Keeps `fit` from ending a rank's later epochs after as many steps as its first one had."""
    why = (
        "the first epoch's number of steps counts as the size of a dataset that can't tell its "
        "own; fit warns that such a dataset has ended too early, with no option against either"
    )
    change(EpochIterator, "__iter__", _beginning, why)


def _beginning(plain: Callable[..., Any]) -> Callable[..., Any]:
    def begin_epoch(self: Any) -> Any:
        # Adapters of arrays have none, and would make one of all their data if asked.
        if _has_global_epochs(getattr(self.data_adapter, "_dataset", None)):
            self._num_batches = None
            self._interrupted_warning = lambda: None
        return plain(self)

    return begin_epoch


def _has_global_epochs(dataset: Any) -> bool:
    """Tells whether a dataset is one of `global_epochs`, or made from one."""
    if hasattr(dataset, _MARK):
        return True
    inputs = getattr(dataset, "_inputs", tuple)
    return any(_has_global_epochs(one) for one in inputs())

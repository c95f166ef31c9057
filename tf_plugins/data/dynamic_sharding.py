"""Samples for ranks that go at their own pace: each takes the next ones of an order they share."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from trepak.horovod_ext import basics
from trepak.horovod_ext import dynamic_sharding as order
from trepak.ops.loader import load
from trepak.tf_plugins.transport.parameter_servers import ParameterServers, default_servers

# With 4, TensorFlow's own number, the orders of 4,096 samples are correlated with each other and
# with the samples' (1.3 and 1.8 times as much as random ones; with 8, 1.0 and 1.1).
_ROUNDS = 8


def dynamic_sharding(
    samples: int, batch_size: int, seed: int = 0, transport: ParameterServers | None = None
) -> tf.data.Dataset:
    """Returns the numbers of the samples that this rank is to train with, batch by batch.

    All ranks take from one random order: every sample is taken once before any is taken again, and
    then in another order, on and on. With shards a fast rank would see its own samples more often
    than a slow one does, and the model would fit these better. Each batch is asked for when it is
    needed, which is a small message to one of the job's parameter servers and back; `prefetch(1)`
    hides it. What comes after this dataset does not take batches ahead by itself.

    A collective call: make it on all ranks, in the same order as others. Take from it in one thread
    at a time, as `fit` does. A rank that is given samples and ends before it trains with them keeps
    them from the others.

    Args:
        samples: how many there are.
        batch_size: how many a step takes.
        seed: of the order, the same on all ranks. A job that goes on from a checkpoint needs
            another one, or begins the same order anew.
        transport: what the optimizer has, if it is a `trepak.ParameterServers` or `trepak.Geryon`.

    Returns:
        Endless batches of numbers from 0 to `samples` - 1: int64, [batch_size].

    Raises:
        ValueError: a number is not positive, ranks have given different ones, the job is elastic,
            or its servers run with other options than the transport's.
        HorovodInternalError: a rank did not answer in time, or has left.
    """
    if samples < 1 or batch_size < 1:
        raise ValueError(
            f"samples and batch_size must be at least 1, got {samples} and {batch_size}."
        )
    samples, batch_size, seed = int(samples), int(batch_size), int(seed)  # NumPy's as well
    key = order.start(samples, seed, transport or default_servers())
    size = basics.size()

    def take(_: Any) -> Any:
        taken_before = load().trepak_take_samples(key=key, size=size, count=batch_size)
        return shuffled(taken_before, batch_size, samples, seed)

    # A slow rank would take ever more samples ahead, which the others are then without.
    options = tf.data.Options()
    options.experimental_optimization.inject_prefetch = False
    options.experimental_optimization.map_parallelization = False  # nor in a map after this
    return tf.data.Dataset.counter().map(take).with_options(options)


def shuffled(first: Any, count: int, samples: int, seed: int) -> Any:
    """Returns what comes after so many samples of an order; int64, [count]; see above."""
    places = first + tf.range(count, dtype=tf.int64)
    passes = places // samples
    seeds = tf.stack([tf.fill([count], tf.constant(seed, tf.int64)), passes, passes], axis=1)
    numbers = places % samples
    if not _is_too_short(samples - 1):
        return _permuted(numbers, seeds, samples)
    # A permutation of one more: who gets that one takes what it becomes itself.
    numbers = _permuted(numbers, seeds, samples + 1)
    extra = _permuted(tf.fill([count], tf.constant(samples, tf.int64)), seeds, samples + 1)
    return tf.where(numbers == samples, extra, numbers)


def _permuted(numbers: Any, seeds: Any, count: int) -> Any:
    """Returns what a permutation of 0 to `count` - 1, one for each seed, makes of numbers."""
    # tf.random.experimental.index_shuffle spoils seeds of their own (TensorFlow 2.21).
    return tf.raw_ops.RandomIndexShuffle(
        index=numbers, seed=seeds, max_index=tf.constant(count - 1, tf.int64), rounds=_ROUNDS
    )


def _is_too_short(largest: int) -> bool:
    """Returns whether TensorFlow (2.21) permutes numbers of a bit less than the largest has.

    They have an even number of bits, at least 16, of which a power of 4 needs one more.
    """
    return largest >= 1 << 16 and largest.bit_count() == 1 and largest.bit_length() % 2 == 1

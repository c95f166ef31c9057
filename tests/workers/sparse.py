"""Sparse gradients: each id travels once, they count as if dense, and join() ends uneven loops."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import keras
import ml_dtypes
import numpy as np
import tensorflow as tf
from bad_input import fails
from harness import case
from horovod.tensorflow.mpi_ops import MPI_LIB

import trepak
import trepak.keras as hvd

IDS = 7


def slices_of(rank: int, dtype: Any = "float32", indices: Any = "int64", step: int = 0) -> Any:
    """Rows of whole numbers, several of one id; each rank has another number of rows."""
    rng = np.random.default_rng([rank, step])
    rows = 6 + rank
    values = rng.integers(-4, 5, (rows, 2))
    ids = rng.integers(0, IDS - 3, rows)
    shape = tf.constant([IDS, 2], indices)
    return tf.IndexedSlices(tf.cast(values, dtype), tf.cast(ids, indices), shape)


def dense(slices: Any) -> Any:
    """What slices stand for, float64, computed row by row."""
    made = np.zeros((IDS, 2))
    values = slices.values.numpy().real.astype(np.float64)
    for row, index in zip(values, slices.indices.numpy(), strict=True):
        made[index] += row
    return made


def total(step: int = 0, ranks: Any = None) -> Any:
    ranks = range(hvd.size()) if ranks is None else ranks
    return sum(dense(slices_of(rank, step=step)) for rank in ranks)


@case
def every_dtype_counts_as_if_dense() -> None:
    n = hvd.size()
    dtypes = ("float32", "float64", "float16", "bfloat16", "int32", "complex64")
    for dtype, indices in zip(dtypes, 3 * ("int32", "int64"), strict=True):
        slices = slices_of(hvd.rank(), dtype, indices)
        call: Callable[..., Any] = functools.partial(trepak.allreduce, slices, op=trepak.Sum)
        for reduced in (call(), tf.function(functools.partial(call, name="s"))()):
            assert reduced.dtype == dtype and reduced.indices.dtype == indices
            assert reduced.dense_shape.numpy().tolist() == [IDS, 2]
            ids = reduced.indices.numpy().tolist()
            assert len(set(ids)) == len(ids), ids
            np.testing.assert_array_equal(dense(reduced), total(), err_msg=dtype)
    mean, plain = trepak.grouped_allreduce([slices_of(hvd.rank()), tf.ones([2])])
    np.testing.assert_allclose(dense(mean), total() / n, rtol=1e-6)
    assert plain.numpy().tolist() == [1, 1]


@case
def narrow_rows_are_rounded_once() -> None:
    """256 and many ones: in bfloat16 each one would be lost."""
    values = tf.constant([[256.0]] + [[1.0]] * 4, tf.bfloat16)
    slices = tf.IndexedSlices(values, tf.zeros([5], tf.int32), tf.constant([3, 1]))
    reduced = trepak.allreduce(slices, op=trepak.Sum)
    right = np.array([[260.0 * hvd.size()]]).astype(ml_dtypes.bfloat16)
    assert reduced.values.numpy() == right


@case
def averages_of_integers_are_quotients() -> None:
    """As in Horovod; and the sum of 100 by rank is more than 8 bits hold."""
    n, r = hvd.size(), hvd.rank()
    made = {"int8": "float32", "uint8": "float32", "int32": "float64", "int64": "float64"}
    for dtype, wanted in made.items():
        rows = tf.constant([[100, 1], [r, 1]], dtype)
        slices = tf.IndexedSlices(rows, tf.constant([3, 5]), tf.constant([IDS, 2]))
        reduced = trepak.allreduce(slices, op=trepak.Average)
        assert reduced.dtype == wanted and reduced.indices.numpy().tolist() == [3, 5]
        assert reduced.values.numpy().tolist() == [[100, 1], [(n - 1) / 2, 1]], dtype


@case
def one_id_travels_as_one_row() -> None:
    sent: list[int] = []
    allgather = MPI_LIB.horovod_allgather

    def spy(tensor: Any, *args: Any, **options: Any) -> Any:
        if tensor.shape.rank == 2:
            sent.append(int(tensor.shape[0]))
        return allgather(tensor, *args, **options)

    MPI_LIB.horovod_allgather = spy
    try:
        variable = keras.Variable(np.ones((IDS, 2)), dtype="float32")
        optimizer = hvd.DistributedOptimizer(keras.optimizers.SGD(1.0))
        optimizer.build([variable])
        grad = tf.IndexedSlices(tf.ones([1024, 2]), tf.fill([1024], 3), tf.constant([IDS, 2]))
        optimizer.apply([grad], [variable])
    finally:
        MPI_LIB.horovod_allgather = allgather
    assert sent == [1] * (hvd.size() > 1), sent
    right = np.ones((IDS, 2))
    right[3] -= 1024
    np.testing.assert_allclose(variable.numpy(), right)


@case
def every_optimizer_takes_them_as_dense_ones() -> None:
    """Adam squares gradients: of an id's rows it must square the sum, alone and with others."""

    def train(**options: Any) -> Any:
        variable = keras.Variable(np.zeros((IDS, 2)), dtype="float32")
        optimizer = hvd.DistributedOptimizer(keras.optimizers.Adam(0.1), **options)
        optimizer.build([variable])
        for step in range(3):
            optimizer.apply([slices_of(hvd.rank(), step=step)], [variable])
        return variable.numpy()

    np.testing.assert_allclose(train(), train(sparse_as_dense=True), rtol=1e-5)


def steps_until_all_have_joined(step: Callable[[int], Any]) -> int:
    """Makes 1, 3, 5 … steps by rank; returns how many the last rank has made."""
    for number in range(1 + 2 * hvd.rank()):
        step(number)
    assert int(hvd.join()) == hvd.size() - 1
    return 2 * hvd.size() - 1


def weights_after(steps: int) -> Any:
    """SGD's with a rate of 1: ranks that have joined add zeros to the average of all."""
    n = hvd.size()
    active = [[r for r in range(n) if number < 1 + 2 * r] for number in range(steps)]
    return -sum(total(number, ranks) for number, ranks in enumerate(active)) / n


def apply_twice(optimizer: Any, variables: Any, values: Any, ids: Any) -> None:
    """Applies rows to two tables, and ones to a bias."""
    slices = tf.IndexedSlices(values, ids, tf.constant([IDS, 2], tf.int64))
    optimizer.apply([slices, slices, tf.ones([3])], variables)


@case
def join_with_an_optimizer() -> None:
    for eager in (True, False):
        variables = [keras.Variable(np.zeros((IDS, 2)), dtype="float32") for _ in range(2)]
        bias = keras.Variable(np.zeros(3), dtype="float32")
        optimizer = hvd.DistributedOptimizer(keras.optimizers.SGD(1.0))
        optimizer.build([*variables, bias])

        apply = functools.partial(apply_twice, optimizer, [*variables, bias])
        function = apply if eager else tf.function(apply)

        def step(number: int, function: Any = function) -> None:
            slices = slices_of(hvd.rank(), step=number)
            function(slices.values, slices.indices)

        steps_until_all_have_joined(step)
        right = weights_after(1 + 2 * hvd.rank())
        for variable in variables:
            np.testing.assert_allclose(variable.numpy(), right, rtol=1e-5, atol=1e-6)


@case
def join_with_a_tape() -> None:
    """Lookups in bfloat16, the same in every step: Horovod knows all collectives by then."""
    table = tf.Variable(tf.zeros([IDS, 2], tf.bfloat16))

    @tf.function
    def step() -> Any:
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(tf.gather(table, [3, 3, 5]))
        grad = hvd.DistributedGradientTape(tape).gradient(loss, table)
        table.scatter_sub(grad)

    steps = 1 + 2 * hvd.rank()
    steps_until_all_have_joined(lambda _: step())
    n = hvd.size()
    share = sum(sum(number < 1 + 2 * r for r in range(n)) / n for number in range(steps))
    right = np.zeros((IDS, 2))
    right[3], right[5] = -2 * share, -share
    np.testing.assert_allclose(tf.cast(table, tf.float32), right, rtol=2**-6)


@case
def join_with_slices_of_ones_own() -> None:
    sums = []

    def step(number: int) -> None:
        slices = slices_of(hvd.rank(), step=number)
        sums.append(dense(trepak.allreduce(slices, op=trepak.Sum)))

    steps_until_all_have_joined(step)
    for number, made in enumerate(sums):
        ranks = [r for r in range(hvd.size()) if number < 1 + 2 * r]
        np.testing.assert_array_equal(made, total(number, ranks))


@case
def other_collectives_say_that_a_rank_has_joined() -> None:
    if hvd.size() > 1 and hvd.rank() == hvd.size() - 1:
        fails(
            RuntimeError,
            lambda: trepak.broadcast(tf.ones([2]), hvd.rank(), name="late"),
            f"rank {hvd.rank()}: broadcast of 'late'",
            "join()",
        )
    hvd.join()


@case
def reductions_go_on_afterwards() -> None:
    reduced = trepak.allreduce(slices_of(hvd.rank()), op=trepak.Sum)
    np.testing.assert_array_equal(dense(reduced), total())
    assert trepak.allgather([hvd.rank()]).numpy().tolist() == list(range(hvd.size()))

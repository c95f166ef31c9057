"""Sven's alltoall between ranks: what arrives, in which order, its gradients, its errors."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from harness import case

import trepak
import trepak.keras as hvd
from trepak.horovod_ext import alltoall, config, exchange

DTYPES = (tf.int32, tf.int64, tf.bfloat16, tf.float32, tf.float64)


def split_of(sender: int, receiver: int, number: int = 0, columns: int = 3) -> Any:
    """Returns what a rank sends another one: some splits are empty, all differ."""
    rows = (sender + 2 * receiver + number) % 4
    base = 100 * sender + 10 * receiver + number
    return np.arange(rows * columns).reshape(rows, columns) % 7 + base


def sent(number: int, dtype: tf.DType = tf.float32) -> tuple[Any, list[int]]:
    """Returns what this rank sends, and its splits."""
    splits = [split_of(hvd.rank(), receiver, number) for receiver in range(hvd.size())]
    return tf.cast(np.concatenate(splits), dtype), [len(split) for split in splits]


def check(received: tuple[Any, Any], number: int) -> None:
    """Checks what this rank has got of an exchange of that number."""
    splits = [split_of(sender, hvd.rank(), number) for sender in range(hvd.size())]
    rows, counts = received
    np.testing.assert_array_equal(counts, [len(split) for split in splits])
    expected = tf.cast(np.concatenate(splits), rows.dtype)
    np.testing.assert_array_equal(tf.cast(rows, tf.float64), tf.cast(expected, tf.float64))


@case
def every_dtype_arrives() -> None:
    for dtype in DTYPES:
        check(trepak.alltoall_async(*sent(1, dtype), name=dtype.name).wait(), 1)


@case
def it_equals_horovods() -> None:
    rows = tf.reshape(tf.range(6 * hvd.size()) + 100 * hvd.rank(), [2 * hvd.size(), 3])
    ours, counts = trepak.alltoall_async(rows).wait()
    np.testing.assert_array_equal(ours, trepak.alltoall(rows))
    np.testing.assert_array_equal(counts, [2] * hvd.size())


@case
def what_was_asked_for_carries_it() -> dict[str, Any]:
    """All ranks are on this host; so all goes over UCX unless flows were asked for."""
    before = alltoall.statistics()
    trepak.alltoall_async(tf.ones([hvd.size()]), name="carried").wait()
    counted = alltoall.statistics()
    sent = counted["bytes_sent"] - before["bytes_sent"]
    over_ucx = counted["bytes_sent_over_ucx"] - before["bytes_sent_over_ucx"]
    assert sent == 4 * (hvd.size() - 1)
    over_flows = config.value("TREPAK_ALLTOALL_TRANSPORT") == "flows"
    assert over_ucx == (0 if over_flows else sent), counted
    return counted


@case
def several_are_under_way() -> None:
    """In eager mode, and waited for in another order than they were sent."""
    under_way = {number: trepak.alltoall_async(*sent(number), name="many") for number in range(8)}
    for number in (3, 0, 7, 1, 2, 6, 5, 4):
        check(under_way[number].wait(), number)


@case
def it_goes_without_the_others() -> dict[str, Any]:
    """The last rank comes late; the others send meanwhile, and compute."""
    is_late = hvd.rank() == hvd.size() - 1
    before = alltoall.statistics().get("exchanges", 0)
    if is_late:
        exchange.gather(None, "that the others have sent")  # it would hang if they waited for it
    pending = [trepak.alltoall_async(*sent(number), name="late") for number in range(3)]
    if not is_late:
        exchange.gather(None, "that the others have sent")
    for number, one in enumerate(pending):
        check(one.wait(), number)
    counted = alltoall.statistics()
    assert counted["exchanges"] == before + 3
    return counted


@case
def names_need_no_common_order() -> None:
    names = ["one", "two", "three"]
    mine = names[hvd.rank() % 3 :] + names[: hvd.rank() % 3]
    for _ in range(5):
        pending = {name: trepak.alltoall_async(*sent(4), name=name) for name in mine}
        for name in reversed(mine):
            check(pending[name].wait(), 4)


@case
def a_graph_computes_between_request_and_wait() -> None:
    rows, splits = sent(5)

    @tf.function
    def steps(rows: Any, splits: Any) -> Any:
        sums = tf.zeros([])
        for _ in tf.range(4):
            pending = trepak.alltoall_async(rows, splits, name="graph")
            sums += tf.reduce_sum(rows)
            got, counts = pending.wait()
            got = tf.ensure_shape(got, [None, 3])
        return got, counts, sums

    got, counts, sums = steps(rows, splits)
    check((got, counts), 5)
    np.testing.assert_allclose(sums, 4 * np.sum(rows))


@case
def gradients_come_back() -> None:
    for traced in (False, True):
        rows, splits = sent(6)
        variable = tf.Variable(rows)

        def gradient(variable: Any, splits: Any) -> Any:
            with tf.GradientTape() as tape:
                got, _ = trepak.alltoall_async(variable, splits, name="forward").wait()
                # Each rank multiplies what it gets by a number of its own.
                loss = (hvd.rank() + 1.0) * tf.reduce_sum(got * got)
            return tape.gradient(loss, variable)

        function = tf.function(gradient) if traced else gradient
        of_rows = np.repeat(np.arange(hvd.size()) + 1.0, splits)[:, None]
        np.testing.assert_allclose(function(variable, tf.constant(splits)), 2 * of_rows * rows)


@case
def a_rank_that_is_ahead_is_held_up() -> dict[str, Any]:
    """It sends 20 splits of 4 MiB at once; the others hold no more of them than the credit."""
    credit = 32 << 20
    before = alltoall.statistics()["held_up"]
    row = tf.ones([hvd.size(), 1 << 20])
    pending = (
        [trepak.alltoall_async(row, name="ahead") for _ in range(20)] if not hvd.rank() else []
    )
    exchange.gather(None, "that rank 0 has sent all")
    time.sleep(0.2)
    counted = alltoall.statistics()
    assert counted["most_bytes_held"] <= credit + (1 << 20), counted  # with the cases' before
    assert (counted["held_up"] > before) == (hvd.rank() == 0), counted
    for number in range(20):
        rows, _ = (pending or {number: trepak.alltoall_async(row, name="ahead")})[number].wait()
        assert rows.shape == (hvd.size(), 1 << 20) and np.all(rows == 1)
    return counted


@case
def what_nobody_waits_for_is_let_go() -> None:
    """More than the credit holds; but a wait for the last one has all before it come."""
    row = tf.zeros([hvd.size(), 1 << 20])  # 4 MiB a split, 32 MiB of credit
    for _ in range(24):
        trepak.alltoall_async(row, name="dropped")
    rows, _ = trepak.alltoall_async(row + 1, name="dropped").wait()
    assert np.all(rows == 1)


@case
def wrong_arguments_are_refused() -> None:
    rows = tf.zeros([2 * hvd.size() + 1, 3])
    with pytest.raises(ValueError, match="needs splits: its rows are not a multiple"):
        trepak.alltoall_async(rows)
    with pytest.raises(TypeError, match="can't send bool"):
        trepak.alltoall_async(tf.constant([True] * hvd.size()))
    for splits in ([1] * hvd.size(), [-1] * hvd.size(), [9] * hvd.size(), [[1]]):
        with pytest.raises(tf.errors.InvalidArgumentError, match='the alltoall "wrong"'):
            trepak.alltoall_async(rows, splits, name="wrong")
    one = trepak.alltoall_async(tf.zeros([hvd.size()]), name="twice")
    one.wait()
    with pytest.raises(tf.errors.FailedPreconditionError, match="was waited for twice"):
        one.wait()

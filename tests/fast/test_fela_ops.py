"""Parameter Chunks as tensors: what ops put and take; two ranks by two sessions."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from tensorflow.python.eager.cancellation import CancellationManager

from trepak.ops.loader import call, load

RANKS = 2
DEADLINE = 20  # seconds
SAMPLES, LABELS, OUTPUT, GRADIENT = range(4)
NAME = [[0, 7, OUTPUT]]
RULES = {
    "batches": [4] * RANKS,
    "threshold": 4,
    "weights": [1],
    "subsets": [],
    "depth_first": True,
    "hierarchical": True,
    "recompute": True,
}
DTYPES = [
    *(tf.float16, tf.bfloat16, tf.float32, tf.float64, tf.bool, tf.int8, tf.uint8, tf.int16),
    *(tf.uint16, tf.int32, tf.uint32, tf.int64, tf.uint64),
]


@pytest.fixture(autouse=True)
def peers() -> Iterator[None]:
    """Sessions of the ranks' numbers; each test begins with iteration 0."""
    job = {"size": RANKS, "host": "127.0.0.1", "encrypt": False, "dscp": [0]}
    addresses = [
        call(
            "open_session",
            system="fela",
            session=rank,
            options={
                "job": {**job, "rank": rank, "deadline_milliseconds": 1000 * DEADLINE},
                "rules": RULES,
                "transport": "flows",
            },
            secret=[1] * 32,
        )
        for rank in range(RANKS)
    ]
    for rank in range(RANKS):
        call("connect_session", system="fela", session=rank, addresses=addresses)
    for rank in range(RANKS):
        call("fela_prepare", session=rank, samples=4)
    yield
    for rank in range(RANKS):
        call("close_session", system="fela", session=rank, patience_milliseconds=0)


def put(names: Any, rows: Sequence[int], tensors: Sequence[Any], rank: int = 0) -> None:
    load().trepak_fela_put(np.array(names, np.int64), rows, tensors, session=rank)


def take(wanted: Any, dtypes: Sequence[Any], row_shapes: Sequence[Any], rank: int = 0) -> Any:
    """Returns the tensors of chunks, all of which the rank itself holds by default."""
    wanted = np.array(wanted, np.int64).reshape(len(wanted), -1)
    if wanted.shape[1] == 3:
        wanted = np.concatenate([wanted, np.full((len(wanted), 1), rank)], axis=1)
    return load().trepak_fela_take(wanted, dtypes=dtypes, row_shapes=row_shapes, session=rank)


def values(dtype: Any, shape: Sequence[int]) -> tf.Tensor:
    numbers = np.random.default_rng(1).integers(0, 2 if dtype == tf.bool else 100, shape)
    return tf.cast(numbers, dtype)


@pytest.mark.parametrize("dtype", DTYPES, ids=lambda dtype: dtype.name)
@pytest.mark.parametrize("order", [[0, 1, 2], [2, 0, 1], [2], [1], [0]], ids=str)
def test_chunks_are_rows_of_tensors_of_any_type(dtype: Any, order: list[int]) -> None:
    wide, narrow = values(dtype, [7, 3]), values(tf.int32, [7])
    names = [[0, token, GRADIENT] for token in range(3)]
    put(names, [2, 0, 5], [wide, narrow])
    taken = take([names[i] for i in order], [dtype, tf.int32], [[3], []])
    for got, whole in zip(taken, (wide, narrow), strict=True):
        parts = tf.split(whole, [2, 0, 5])
        assert got.dtype == whole.dtype
        np.testing.assert_array_equal(got, tf.concat([parts[i] for i in order], 0))


def test_what_is_taken_is_not_written_to() -> None:
    """TensorFlow computes in place where it is the only one to use a tensor."""
    x = tf.random.stateless_normal([8, 64], [1, 2])
    expected = x.numpy().copy()
    put(NAME, [8], [x])

    @tf.function
    def change(wanted: tf.Tensor) -> tf.Tensor:
        (taken,) = load().trepak_fela_take(
            wanted, dtypes=[tf.float32], row_shapes=[[64]], session=0
        )
        return tf.nn.relu(taken * 0.5 + 1)

    change([[0, 7, OUTPUT, 0]])
    variable = tf.Variable(tf.zeros([8, 64]))
    variable.assign(take(NAME, [tf.float32], [[64]])[0])
    variable.assign_add(tf.ones([8, 64]))
    np.testing.assert_array_equal(take(NAME, [tf.float32], [[64]])[0], expected)
    np.testing.assert_array_equal(x, expected)


def test_what_was_put_is_not_written_to() -> None:
    @tf.function
    def make(x: tf.Tensor) -> tf.Tensor:
        made = tf.tanh(x)  # of an argument: a constant would live as long as the graph
        put_op = load().trepak_fela_put(
            tf.constant(NAME, tf.int64), tf.constant([8], tf.int64), [made], session=0
        )
        with tf.control_dependencies([put_op]):
            return tf.exp(made)

    x = tf.random.stateless_normal([8, 64], [1, 2])
    make(x)
    np.testing.assert_array_equal(take(NAME, [tf.float32], [[64]])[0], tf.tanh(x))


def test_shapes_are_known_but_for_the_rows() -> None:
    @tf.function
    def taken(wanted: tf.Tensor) -> Any:
        return load().trepak_fela_take(
            wanted, dtypes=[tf.float32, tf.int64], row_shapes=[[5, 2], []], session=0
        )

    outputs = taken.get_concrete_function(tf.TensorSpec([None, 4], tf.int64)).outputs
    assert [one.shape.as_list() for one in outputs] == [[None, 5, 2], [None]]


def test_a_helper_takes_what_the_owner_has_put() -> None:
    """The owner, whose trainer does nothing here, sends what the token server orders.

    The labels are taken, too, so that all chunks have come when they are counted.
    """
    x = [values(tf.float64, [4, 3]) + rank for rank in range(RANKS)]
    for rank in range(RANKS):
        put([[0, rank, SAMPLES], [0, rank, LABELS]], [4, 0], [x[rank]], rank)
        call("fela_begin", session=rank, samples=4)
    call("fela_request", session=1)
    for holder in (1, 0):
        token = call("fela_next", session=1)["token"]
        wanted = [[0, number, kind, at] for kind, number, at, *_ in token["inputs"]]
        assert [(one[2], one[3]) for one in wanted] == [(SAMPLES, holder), (LABELS, holder)]
        np.testing.assert_array_equal(take(wanted, [tf.float64], [[3]], rank=1)[0], x[holder])
        call("fela_report", session=1, token=token["token"], loss=0.0)
    counted = call("session_statistics", system="fela", session=1)
    assert (counted["chunks_received"], counted["chunks_local"]) == (2, 2)


X = tf.ones([8, 64])
MISUSE = (tf.errors.InvalidArgumentError, tf.errors.FailedPreconditionError)


@pytest.mark.parametrize(
    ("names", "rows", "tensors", "message"),
    [
        (NAME, [8], [X, tf.constant(["a"] * 8)], "tensor 1 of Fela's chunks is of string"),
        (NAME, [7], [X], "is \\[8,64\\], where they have 7 rows together"),
        (NAME, [8], [tf.ones([])], "is \\[\\], where they have 8 rows together"),
        ([NAME[0], [0, 8, OUTPUT]], [9, -1], [X], "a chunk of Fela has -1 rows"),
        (NAME, [4, 4], [X], "have the shape \\[2\\], not \\[1\\]"),
        ([[0, 7]], [8], [X], "are \\[1,2\\], not \\[chunks, 3\\]"),
        ([[0, 7, 4]], [8], [X], "no chunk of iteration 0, token 7, kind 4"),
        ([[0, -7, OUTPUT]], [8], [X], "no chunk of iteration 0, token -7"),
        ([[0, 2**32, OUTPUT]], [8], [X], "no chunk of iteration 0, token 4294967296"),
        ([[2, 7, OUTPUT]], [8], [X], "token 7 in iteration 2 can't be kept yet"),
        ([*NAME, *NAME], [4, 4], [X], "makes the output of token 7 in iteration 0 twice"),
    ],
)
def test_what_cannot_be_put_is_named(
    names: Any, rows: Any, tensors: list[Any], message: str
) -> None:
    with pytest.raises(MISUSE, match=message):
        put(names, rows, tensors)


@pytest.mark.parametrize(
    ("wanted", "dtypes", "row_shapes", "message"),
    [
        (NAME, [tf.string], [[]], "tensor 0 of Fela's chunks is of string"),
        (NAME, [tf.float32], [[64], []], "have 1 dtypes and 2 row shapes"),
        (NAME, [tf.float32], [[0]], "the shape \\[0\\], with nothing in it"),
        (NAME, [tf.float32], [[63]], "has tensors of 2048 bytes, .* rows each of 252"),
        (NAME, [tf.float32] * 2, [[64]] * 2, "rows each of 256, 256 bytes"),
        ([[0, 8, OUTPUT]], [tf.float32], [[64]], "of itself, but has not put it"),
        ([[0, 7, OUTPUT, RANKS]], [tf.float32], [[64]], "of rank 2 of 2"),
        ([[0, 7, OUTPUT, -1]], [tf.float32], [[64]], "kind 2 of rank -1"),
    ],
)
def test_what_cannot_be_taken_is_named(
    wanted: Any, dtypes: list[Any], row_shapes: list[Any], message: str
) -> None:
    put(NAME, [8], [X])
    with pytest.raises(MISUSE, match=message):
        take(wanted, dtypes, row_shapes)


def test_a_session_that_is_not_open_is_named() -> None:
    for act in (lambda: put(NAME, [8], [X], rank=9), lambda: take(NAME, [tf.float32], [[64]], 9)):
        with pytest.raises(tf.errors.NotFoundError, match="Fela does not run"):
            act()


def test_a_cancelled_step_waits_no_longer() -> None:
    """For what does not come; the deadline is far away."""

    @tf.function
    def wait(wanted: tf.Tensor) -> Any:
        return load().trepak_fela_take(wanted, dtypes=[tf.float32], row_shapes=[[64]], session=0)

    absent = tf.constant([[0, 7, OUTPUT, 1]], tf.int64)
    manager = CancellationManager()
    cancellable = manager.get_cancelable_function(wait.get_concrete_function(absent))
    for seconds in (0.5, 0):  # while it waits, and before
        timer = threading.Timer(seconds, manager.start_cancel)
        timer.start()
        began = time.monotonic()
        with pytest.raises(tf.errors.CancelledError):
            cancellable(absent)
        assert time.monotonic() - began < DEADLINE / 2
        timer.join()
    put(NAME, [8], [X])
    np.testing.assert_array_equal(wait([[0, 7, OUTPUT, 0]])[0], X)

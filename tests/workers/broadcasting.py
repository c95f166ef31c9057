"""Variables that are so large that ranks get root's values by a sum."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from harness import case

import trepak
import trepak.keras as hvd
from trepak.horovod_ext import broadcasting
from trepak.horovod_ext.collectives import RankMismatchError

SPECIAL = [-0.0, 0.0, np.inf, -np.inf, np.nan, 5e-324, 1e-45, -1e-40, 1 / 3]
LARGE = 1 << 19  # elements


class Sums:
    """Counts what travels by a sum."""

    def __enter__(self) -> Sums:
        self.count, self.plain = 0, broadcasting._summed

        def counting(*arguments: Any) -> Any:
            self.count += 1
            return self.plain(*arguments)

        broadcasting._summed = counting
        return self

    def __exit__(self, *_: object) -> None:
        broadcasting._summed = self.plain


@case
def large_variables_are_copied_bit_by_bit() -> None:
    root = hvd.size() - 1
    for dtype in (np.float32, np.float64):
        sent = np.resize(np.array(SPECIAL, np.float64).astype(dtype), (1 << 10, 1 << 9))
        tf.constant(0.0, dtype)  # TensorFlow gives it to whoever wants the constant -0.0 later
        mine = sent if hvd.rank() == root else np.full_like(sent, hvd.rank())
        variables = [tf.Variable(mine), tf.Variable(float(hvd.rank())), tf.Variable(mine)]
        with Sums() as sums:
            trepak.broadcast_variables(variables, root)
        assert sums.count == 2 and float(variables[1]) == root
        for variable in variables[::2]:
            bits = f"u{sent.itemsize}"
            np.testing.assert_array_equal(variable.numpy().view(bits), sent.view(bits))


@case
def ranks_that_differ_are_told_so() -> None:
    def fails(make: Callable[[bool], tf.Variable], root: int, said: str) -> None:
        variable = make(hvd.rank() == 1)
        with Sums() as sums, pytest.raises(RankMismatchError, match=said):
            trepak.broadcast_variables([variable], root)
        assert sums.count == 0

    def large(_: bool) -> tf.Variable:
        return tf.Variable(tf.zeros(LARGE))

    fails(large, int(hvd.rank() == 1), "root")
    fails(lambda one: tf.Variable(tf.zeros(10 if one else LARGE)), 0, "shape")
    fails(lambda one: tf.Variable(tf.zeros(LARGE, tf.float16 if one else tf.float32)), 0, "dtype")


@case
def variables_of_open_shapes() -> None:
    for shape in ([None, 1], None):
        value = tf.fill([LARGE, 1], float(hvd.rank()))
        variable = tf.Variable(value, shape=tf.TensorShape(shape))
        trepak.broadcast_variables([variable], np.int64(1))
        assert float(tf.reduce_min(variable)) == 1.0

"""Digests of variables: they see every difference, and cost no more than reading does."""

from __future__ import annotations

import statistics
import time
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from undisturbed import undisturbed

from trepak.ops.digest import digests

DTYPES = "float16 bfloat16 float32 float64 int8 uint32 int64 bool complex64".split()


@pytest.mark.parametrize("dtype", DTYPES)
def test_equal_bits_have_equal_digests_and_others_do_not(dtype: str) -> None:
    values = tf.cast(np.arange(1000) % 2, dtype)
    one, same, other = (tf.Variable(values) for _ in range(3))
    last = tf.cast(tf.equal(tf.cast(values[-1], tf.float32), 0.0), dtype)
    other.assign(tf.concat([values[:-1], last[None]], 0))
    first, second, third = digests([one, same, other])
    assert first == second != third
    one.assign(other)
    assert digests([one])[0] == third


def test_digests_are_those_that_xxh3_publishes() -> None:
    """The values of its own specification, for the empty input and for one zero byte."""
    found = digests([tf.Variable(np.zeros(n, "uint8")) for n in (0, 1)])
    assert found.tolist() == [0x2D06800538D394C2, 0xC44BDFF4074EECDB]


def test_digests_are_aligned_with_variables() -> None:
    variables = [tf.Variable(np.full(n, n, "float32")) for n in range(200)]  # the first is empty
    all_at_once = digests(variables)
    assert all_at_once.dtype == np.uint64 and len(set(all_at_once.tolist())) == 200
    assert [digests([v])[0] for v in variables] == all_at_once.tolist()
    assert digests([]).shape == (0,)


def test_runs_at_once_while_a_function_is_traced() -> None:
    variable = tf.Variable([1.0, 2.0])
    seen: list[Any] = []

    @tf.function
    def traced() -> None:
        seen.append(digests([variable]))

    traced()
    np.testing.assert_array_equal(seen[0], digests([variable]))


def test_strings_are_refused() -> None:
    with pytest.raises(tf.errors.InvalidArgumentError, match="value 0 is of string"):
        digests([tf.Variable(["a"])])


@pytest.mark.parametrize(("count", "shape"), [(10, (2500, 1000)), (1000, (100,))])
def test_costs_at_most_twice_the_reading_and_ten_milliseconds(
    count: int, shape: tuple[int, ...]
) -> None:
    """25 M parameters in ten variables; and 1,000 small ones."""
    variables = [tf.Variable(np.ones(shape, "float32")) for _ in range(count)]
    arrays = [variable.numpy().view("uint64") for variable in variables]

    def milliseconds() -> tuple[float, float]:
        took: dict[str, list[float]] = {"digest": [], "read": []}
        for _ in range(15):
            began = time.perf_counter()
            digests(variables)
            between = time.perf_counter()
            for array in arrays:
                array.sum()
            took["digest"].append(between - began)
            took["read"].append(time.perf_counter() - between)
        digest, read = (statistics.median(took[name]) * 1e3 for name in ("digest", "read"))
        return digest, read

    digest, read = undisturbed(milliseconds, lambda got: got[0] <= 2 * got[1] + 10)
    print(f"\n{count} variables of {shape}: digests {digest:.2f} ms, reading {read:.2f} ms")
    assert digest <= 2 * read + 10

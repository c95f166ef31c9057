"""Every dtype of TensorFlow in every collective: the right values, or an error that helps."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import ml_dtypes
import numpy as np
import tensorflow as tf
from bad_input import fails
from harness import case

import trepak
import trepak.keras as hvd

SIZES = "int8 uint8 int16 uint16 int32 uint32 int64 uint64"
FLOATS = "float8_e4m3fn float8_e5m2 bfloat16 float16 float32 float64"
SUMMED = f"{FLOATS} complex64 complex128 {SIZES}".replace(" uint64", "").split()
QUANTIZED = "qint8 quint8 qint16 quint16 qint32".split()
MOVED = [*SUMMED, "uint64", "bool", "int4", "uint4", *QUANTIZED]
REFUSED = "int2 uint2 float4_e2m1fn float8_e4m3fnuz float8_e5m2fnuz float8_e4m3b11fnuz".split()
OWN = "float16 float32 float64 int32 int64".split()  # Horovod's, in all collectives
ROWS = 2  # that each rank sends to each other one


def values(rank: int) -> Any:
    """A rank's values: small whole numbers, complex128, [ROWS · size, 3]."""
    rng = np.random.default_rng(rank)
    parts = rng.integers(0, 4, (2, ROWS * hvd.size(), 3)).astype(float)
    return parts[0] + 1j * parts[1]


def plain(dtype: str) -> Any:
    """The NumPy dtype of the values, without the quantization's name."""
    name = dtype[1:] if dtype in QUANTIZED else dtype
    return np.dtype(getattr(ml_dtypes, name, name))


def in_dtype(array: Any, dtype: str) -> Any:
    """Complex numbers as NumPy has them in the dtype."""
    return (array if "complex" in dtype else array.real).astype(plain(dtype))


def tensor_of(array: Any, dtype: str) -> Any:
    made = tf.constant(in_dtype(array, dtype))
    return tf.bitcast(made, dtype) if dtype in QUANTIZED else made


def array_of(tensor: Any) -> Any:
    """A tensor's values, complex128; quantized ones of their numbers."""
    dtype = tensor.dtype.name
    tensor = tf.bitcast(tensor, dtype[1:]) if dtype in QUANTIZED else tensor
    return tensor.numpy().astype(np.float64 if "complex" not in dtype else np.complex128)


def check(tensor: Any, expected: Any, dtype: str) -> None:
    assert tensor.dtype == dtype, (tensor.dtype, dtype)
    expected = in_dtype(expected, dtype)
    wide = np.complex128 if "complex" in dtype else np.float64
    np.testing.assert_array_equal(array_of(tensor), expected.astype(wide), err_msg=dtype)


def both_ways(
    function: Callable[..., Any], inputs: dict[str, Any], own: Sequence[str]
) -> list[tuple[str, Any]]:
    """What a function makes of each dtype's inputs: eagerly, and in a graph.

    In a graph, of all dtypes but `own`, which are Horovod's.
    """

    @tf.function
    def graph(inputs: dict[str, Any]) -> dict[str, Any]:
        return {dtype: function(*given, dtype) for dtype, given in inputs.items()}

    others = {dtype: given for dtype, given in inputs.items() if dtype not in own}
    eagerly = {dtype: function(*given, dtype) for dtype, given in inputs.items()}
    return [*eagerly.items(), *graph(others).items()]


@case
def values_that_are_moved() -> None:
    n, rank = hvd.size(), hvd.rank()
    all_values = [values(r) for r in range(n)]
    splits = [ROWS] * n

    def move(tensor: Any, head: Any, dtype: str) -> Any:
        exchanged, received = trepak.alltoall(tensor, splits, name=f"a_{dtype}")
        gathered = [
            trepak.allgather(tensor, name=f"b_{dtype}"),
            *trepak.grouped_allgather([tensor, head], name=f"c_{dtype}"),
        ]
        copied = trepak.broadcast(tensor, n - 1, name=f"d_{dtype}")
        return [*gathered, copied, exchanged, trepak.alltoall(tensor, name=f"e_{dtype}")], received

    gathered = np.concatenate(all_values)
    heads = np.concatenate([v[:1] for v in all_values])
    mine = np.concatenate([v[rank * ROWS : (rank + 1) * ROWS] for v in all_values])
    expected = [gathered, gathered, heads, all_values[-1], mine, mine]
    inputs = {d: [tensor_of(a, d) for a in (values(rank), values(rank)[:1])] for d in MOVED}
    for dtype, (moved, received) in both_ways(move, inputs, OWN):
        assert received.numpy().tolist() == splits
        for tensor, right in zip(moved, expected, strict=True):
            check(tensor, right, dtype)


@case
def values_that_are_summed() -> None:
    n, rank = hvd.size(), hvd.rank()
    total = np.stack([values(r) for r in range(n)]).sum(0)
    share = total[rank * ROWS : (rank + 1) * ROWS]

    def reduce(tensor: Any, dtype: str) -> list[Any]:
        group = [tensor, tensor[:2]]
        return [
            trepak.allreduce(tensor, op=trepak.Sum, name=f"a_{dtype}"),
            *trepak.grouped_allreduce(group, op=trepak.Sum, name=f"b_{dtype}"),
            trepak.allreduce(tensor, name=f"c_{dtype}"),
            trepak.reducescatter(tensor, op=trepak.Sum, name=f"d_{dtype}"),
            trepak.grouped_reducescatter([tensor], op=trepak.Sum)[0],
        ]

    inputs = {dtype: [tensor_of(values(rank), dtype)] for dtype in SUMMED}
    for dtype, reduced in both_ways(reduce, inputs, OWN):
        exact = total if "complex" in dtype else total.real
        mean = exact / n if "float" in dtype or "complex" in dtype else exact // n
        expected = [total, total, total[:2], mean + 0j, share, share]
        for tensor, right in zip(reduced, expected, strict=True):
            check(tensor, right, dtype)


@case
def the_least_and_the_largest() -> None:
    n, rank = hvd.size(), hvd.rank()
    everyone = np.stack([values(r).real for r in range(n)])
    ops = {trepak.Min: np.min, trepak.Max: np.max, trepak.Product: np.prod}
    for dtype in [d for d in SUMMED if "complex" not in d]:
        for op, of in ops.items():
            got = trepak.allreduce(tensor_of(values(rank), dtype), op=op)
            check(got, of(everyone, axis=0) + 0j, dtype)
    for dtype in ("complex64", "complex128"):
        fails(
            ValueError,
            lambda dtype=dtype: trepak.allreduce(tf.zeros([2], dtype), op=trepak.Max, name="x"),
            f"rank {rank}",
            "'x'",
            dtype,
            "op=Sum",
        )


@case
def sums_are_rounded_once() -> None:
    """256 and n times 1: bfloat16, which has 8 bits, would lose each of the ones."""
    first = 256.0 if hvd.rank() == 0 else 1.0
    got = trepak.allreduce(tf.constant([first, 1.0], tf.bfloat16), op=trepak.Sum)
    right = np.array([255.0 + hvd.size(), hvd.size()]).astype(ml_dtypes.bfloat16)
    np.testing.assert_array_equal(got.numpy(), right)
    large = tf.constant([2**31 + hvd.rank()] * 2, tf.uint32)
    np.testing.assert_array_equal(
        trepak.broadcast(large, hvd.size() - 1).numpy(), [2**31 + hvd.size() - 1] * 2
    )
    largest = trepak.allreduce(large, op=trepak.Max).numpy()
    np.testing.assert_array_equal(largest, [2**31 + hvd.size() - 1] * 2)


COLLECTIVES: dict[str, Callable[..., Any]] = {
    "allreduce": trepak.allreduce,
    "grouped_allreduce": lambda x, **named: trepak.grouped_allreduce([x], **named),
    "reducescatter": trepak.reducescatter,
    # Horovod's has no name.
    "grouped_reducescatter": lambda x, name=None: trepak.grouped_reducescatter([x]),
    "allgather": trepak.allgather,
    "grouped_allgather": lambda x, **named: trepak.grouped_allgather([x], **named),
    "broadcast": lambda x, **named: trepak.broadcast(x, 0, **named),
    "alltoall": trepak.alltoall,
}


@case
def what_does_not_travel_is_refused() -> None:
    sums = [what for what in COLLECTIVES if "reduce" in what]
    refused = {dtype: list(COLLECTIVES) for dtype in [*REFUSED, "string"]}
    refused |= {dtype: sums for dtype in MOVED if dtype not in SUMMED}
    for dtype, collectives in refused.items():
        value = tf.constant(["a", "b"]) if dtype == "string" else tensor_of(values(0), dtype)
        for what in collectives:

            def call(x: Any, what: str = what) -> Any:
                return COLLECTIVES[what](x, name="it")

            name = "an unnamed tensor" if what == "grouped_reducescatter" else "'it'"
            words = (f"rank {hvd.rank()}: {what} of {name}", dtype)
            message = fails(TypeError, lambda call=call, value=value: call(value), *words)
            assert any(way in message for way in ("tf.cast", "dequantize", "allgather_object"))
            if dtype in ("string", "bool"):
                fails(TypeError, lambda call=call, value=value: tf.function(call)(value), *words)


@case
def scalars_have_no_rows() -> None:
    for dtype in ("bfloat16", "complex64", "uint32"):
        for what in ("allgather", "alltoall"):
            message = (f"rank {hvd.rank()}: {what}", "reshape")
            call = COLLECTIVES[what]
            fails(ValueError, lambda c=call, d=dtype: c(tf.zeros([], d)), *message)
    sum_of_ones = trepak.allreduce(tf.constant(1.0, tf.bfloat16), op=trepak.Sum)
    assert float(sum_of_ones) == hvd.size() and sum_of_ones.shape == ()


@case
def dtypes_that_travel_alike_are_told_apart() -> None:
    pairs = [("bfloat16", "float32"), ("float8_e5m2", "float8_e4m3fn"), ("uint32", "qint32")]
    for first, second in pairs:
        dtype = first if hvd.rank() == 0 else second
        value = tensor_of(values(0), dtype)
        for what in ("allgather", "broadcast", "alltoall"):
            fails(
                ValueError,
                lambda what=what, value=value: COLLECTIVES[what](value, name="it"),
                f"rank 0 passed {first}",
                f"rank 1 passed {second}",
            )


@case
def gradients_flow_back() -> None:
    """Each collective's gradient in bfloat16 is that in float32: the values are whole numbers."""
    n, rank = hvd.size(), hvd.rank()
    weights = tf.constant(values(rank + n).real, tf.float32)

    def gradient(collective: Callable[..., Any], dtype: Any, name: str) -> Any:
        @tf.function
        def of(x: Any) -> Any:
            with tf.GradientTape() as tape:
                tape.watch(x)
                made = collective(x, name=name)
                weight = tf.concat([weights] * n, 0)[: tf.shape(made)[0]]
                loss = tf.reduce_sum(tf.cast(made, tf.float32) * weight)
            return tape.gradient(loss, x)

        return of(tf.constant(values(rank).real, dtype))

    for what in ("allreduce", "allgather", "broadcast", "alltoall", "reducescatter"):
        wide = gradient(COLLECTIVES[what], tf.float32, f"{what}_wide")
        narrow = gradient(COLLECTIVES[what], tf.bfloat16, f"{what}_narrow")
        assert narrow.dtype == tf.bfloat16
        np.testing.assert_allclose(tf.cast(narrow, tf.float32), wide, rtol=2**-7, err_msg=what)
        assert np.abs(wide).max() > 0 or (what == "broadcast" and rank), what
    # Of a sum, the gradient is the sum of all ranks' weights.
    summed = gradient(lambda x, **o: trepak.allreduce(x, op=trepak.Sum, **o), tf.bfloat16, "s")
    right = sum(values(r + n).real for r in range(n))
    np.testing.assert_array_equal(tf.cast(summed, tf.float32), right)


@case
def variables_are_copied() -> None:
    names = [*FLOATS.split()[2:], "complex64", "int8", "uint16", "uint32", "bool"]
    for copy in (
        lambda variables: trepak.broadcast_variables(variables, 1),
        lambda variables: trepak.broadcast_variables(variables, 1, inplace=True),
        lambda variables: trepak.broadcast_(variables, 1),
    ):
        variables = [
            tf.Variable(tensor_of(values(hvd.rank()), dtype), name=f"v_{dtype}") for dtype in names
        ]
        returned = copy(variables)
        for variable, dtype in zip(variables, names, strict=True):
            check(tf.convert_to_tensor(variable), values(1), dtype)
        for value, dtype in zip(returned or [], names if returned else [], strict=True):
            check(value, values(1), dtype)
    words = [tf.Variable(["a"], name="words")]
    copy_words = functools.partial(trepak.broadcast_variables, words, 0)
    for inplace in (False, True):
        call = functools.partial(copy_words, inplace=inplace)
        fails(TypeError, call, "string", f"rank {hvd.rank()}")


@case
def what_keras_calls_takes_numbers() -> None:
    """As Horovod's: tensors, of whatever value; what a session makes of them where there is one."""
    mean = (hvd.size() - 1) / 2
    assert float(hvd.allreduce(float(hvd.rank()))) == mean
    assert tf.is_tensor(hvd.allreduce(1.0)) and hvd.allreduce(1.0).dtype == tf.float32
    assert hvd.allgather(np.array([hvd.rank()])).numpy().tolist() == list(range(hvd.size()))
    with tf.Graph().as_default(), tf.compat.v1.Session():
        assert hvd.allreduce(float(hvd.rank()), name="in_a_session") == np.float32(mean)
        assert hvd.broadcast(np.arange(3) + hvd.rank(), 1, name="also").tolist() == [1, 2, 3]

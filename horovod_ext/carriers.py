"""What travels in place of values whose dtype Horovod's collectives do not have.

One table serves all collectives. Values that are only moved travel as a dtype that holds each of
them exactly. Values that are summed travel as one that is at least as wide, and are rounded once.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import tensorflow as tf
from horovod.tensorflow import Average, Sum

from trepak.horovod_ext import basics


@dataclass(frozen=True)
class Carrier:
    """How the values of a dtype travel as values of another.

    Attributes:
        dtype: the dtype that travels.
        encode: makes what travels of a tensor.
        decode: makes the values of what has travelled; takes the dtype, too.
        pairs: each value travels as two, along a new last dimension; only sums and means of
            such parts are those of the values.
    """

    dtype: Any
    encode: Callable[[Any], Any]
    decode: Callable[[Any, Any], Any]
    pairs: bool = False


def _cast(dtype: Any) -> Carrier:
    return Carrier(dtype, lambda tensor: tf.cast(tensor, dtype), tf.cast)


def _bits(dtype: Any) -> Carrier:
    return Carrier(dtype, lambda tensor: tf.bitcast(tensor, dtype), tf.bitcast)


def _parts(dtype: Any) -> Carrier:
    def encode(tensor: Any) -> Any:
        return tf.stack([tf.math.real(tensor), tf.math.imag(tensor)], axis=-1)

    def decode(carried: Any, _: Any) -> Any:
        return tf.complex(carried[..., 0], carried[..., 1])

    return Carrier(dtype, encode, decode, pairs=True)


_REDUCED = frozenset([tf.uint8, tf.int8, tf.int32, tf.int64, tf.float16, tf.float32, tf.float64])
_SCATTERED = _REDUCED - {tf.uint8, tf.int8}
_MOVED = _REDUCED | {tf.uint16, tf.int16, tf.bool}

# dtype → what it is moved as, what it is summed as; None: no way. What Horovod has itself stays.
_CARRIERS: dict[Any, tuple[Carrier | None, Carrier | None]] = {
    tf.bfloat16: (_cast(tf.float32), _cast(tf.float32)),
    tf.dtypes.experimental.float8_e4m3fn: (_cast(tf.float16), _cast(tf.float32)),
    tf.dtypes.experimental.float8_e5m2: (_cast(tf.float16), _cast(tf.float32)),
    tf.complex64: (_parts(tf.float32), _parts(tf.float32)),
    tf.complex128: (_parts(tf.float64), _parts(tf.float64)),
    tf.int8: (None, _cast(tf.int32)),
    tf.uint8: (None, _cast(tf.int32)),
    tf.int16: (None, _cast(tf.int32)),
    tf.uint16: (None, _cast(tf.int32)),
    tf.uint32: (_bits(tf.int32), _cast(tf.int64)),
    tf.uint64: (_bits(tf.int64), None),
    tf.qint8: (_bits(tf.int8), None),
    tf.quint8: (_bits(tf.uint8), None),
    tf.qint16: (_bits(tf.int16), None),
    tf.quint16: (_bits(tf.uint16), None),
    tf.qint32: (_bits(tf.int32), None),
    tf.dtypes.experimental.int4: (_cast(tf.int8), None),
    tf.dtypes.experimental.uint4: (_cast(tf.int8), None),
}

_RECEIVED = _REDUCED | {tf.bool}  # into a variable's own buffer

_SUMS = {"allreduce", "grouped_allreduce"}
_SCATTERS = {"reducescatter", "grouped_reducescatter"}
_NEEDS_ROWS = _SCATTERS | {"allgather", "grouped_allgather", "alltoall"}


def is_native(dtype: Any, what: str) -> bool:
    """Tells whether Horovod's collective of this name has the dtype itself."""
    dtype = tf.as_dtype(dtype).base_dtype  # a TensorFlow 1 variable's is float32_ref, say
    if what == "broadcast_":
        return dtype in _RECEIVED
    native = _REDUCED if what in _SUMS else _SCATTERED if what in _SCATTERS else _MOVED
    return dtype in native


class Passage:
    """One tensor's way through a collective and back."""

    def __init__(self, tensor: Any, what: str, name: str | None, op: Any) -> None:
        """Finds what the tensor travels as.

        Args:
            tensor: a tensor or variable of any dtype.
            what: the collective's name, as "allreduce".
            name: the tensor's name, for errors; None: it has none.
            op: how values are combined; None where they are only moved.

        Raises:
            TypeError: values of this dtype can't go through this collective.
            ValueError: they can't be combined by `op`, or a scalar has no rows to share.
        """
        self._tensor = tensor
        self._dtype = tf.as_dtype(tensor.dtype).base_dtype
        self._carrier: Carrier | None = None
        if is_native(self._dtype, what):
            return
        moved, summed = _CARRIERS.get(self._dtype, (None, None))
        self._carrier = summed if what in _SUMS | _SCATTERS else moved
        where = place(what, name)
        if self._carrier is None:
            raise TypeError(f"{where} does not take {self._dtype.name}: {_remedy(self._dtype)}")
        if self._carrier.pairs and op not in (None, Average, Sum):
            raise ValueError(f"{where}: {self._dtype.name} values have op=Sum and op=Average only.")
        if what in _NEEDS_ROWS and tensor.shape.rank == 0:
            raise ValueError(
                f"{where} got a scalar: give it a first dimension, tf.reshape(x, [1])."
            )

    def begin(self) -> Any:
        """Returns what travels.

        It has as many more dimensions, of size 1, as tell its dtype from others that travel as the
        same one: Horovod then finds out that a rank has passed another dtype.
        """
        if self._carrier is None:
            return self._tensor
        encoded = self._carrier.encode(self._tensor)
        return tf.reshape(encoded, tf.concat([tf.shape(encoded), [1] * self._mark()], 0))

    def end(self, carried: Any) -> Any:
        """Returns the values of what has travelled, in the tensor's own dtype."""
        if self._carrier is None:
            return carried
        marked = [-1 - index for index in range(self._mark())]
        return self._carrier.decode(tf.squeeze(carried, marked), self._dtype)

    def _mark(self) -> int:
        assert self._carrier is not None
        alike = [
            dtype
            for dtype, carriers in _CARRIERS.items()
            if any(carrier and carrier.dtype == self._carrier.dtype for carrier in carriers)
        ]
        return 1 + alike.index(self._dtype)


def carried(
    collective: Callable[[Any], Any], what: str, tensor: Any, name: str | None, op: Any = None
) -> Any:
    """Returns what a collective makes of one tensor of any dtype; see `Passage`."""
    passage = Passage(tensor, what, name, op)
    return passage.end(collective(passage.begin()))


def _remedy(dtype: Any) -> str:
    if dtype in (tf.string, tf.resource, tf.variant):
        return "send it with allgather_object() or broadcast_object()."
    if dtype == tf.bool:
        return "cast it to int32 (tf.cast), and the result back."
    if dtype == tf.uint64:
        return "cast it to int64 (tf.cast), where its values fit, and the result back."
    if dtype.is_quantized:
        return "dequantize it (tf.quantization.dequantize) to float32, and quantize the result."
    return "cast it to a dtype that it takes, such as float32 or int32 (tf.cast)."


def place(what: str, name: str | None) -> str:
    """Returns how errors begin: this rank, the collective's name and that of the tensor, if any."""
    return f"rank {basics.rank()}: {what} of {'an unnamed tensor' if name is None else repr(name)}"


def stable_name(what: str, tensor: Any) -> str:
    """Returns how Horovod would name a collective of a tensor in a graph: after the tensor."""
    return re.sub("[^a-zA-Z0-9_]", "_", f"Horovod_{what}_{tensor.name}")

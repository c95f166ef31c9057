"""Sven's alltoall: each rank sends its splits when it has them, and waits for nobody to arrive.

The thesis' section 6.1.1 (Figure 6.1a). Request and wait are two ops, so that a step computes
between them; of `trepak.alltoall`, which is Horovod's, all ranks must have arrived first.
"""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from trepak.horovod_ext import basics, config, exchange, sessions
from trepak.horovod_ext.variables import tf_variable
from trepak.ops.loader import load

_DTYPES = (tf.int32, tf.int64, tf.bfloat16, tf.float32, tf.float64)

_session: int | None = None


class Alltoall:
    """An alltoall under way: `wait` returns what this rank has got of all others.

    Attributes:
        ticket: a tensor, with which another tf.function can wait: it makes this anew of it.
    """

    def __init__(
        self, ticket: Any, dtype: tf.DType, row_shape: tf.TensorShape, session: int, label: str
    ) -> None:
        """Is made by `alltoall_async`, or of its ticket.

        Args:
            ticket: what the request has returned.
            dtype: of the values.
            row_shape: of a row.
            session: that of the request, see `opened`.
            label: the name.
        """
        self.ticket = ticket
        self._about = {"T": dtype, "row_shape": row_shape, "session": session, "label": label}

    def wait(self) -> tuple[Any, Any]:
        """Waits until the splits of all ranks are in; once.

        Returns:
            The rows of rank 0, then those of rank 1 and so on, in one tensor; and by rank how many
            they are, an int64 vector.

        Raises:
            tf.errors.FailedPreconditionError: it was waited for before.
            HorovodInternalError: a rank has died or left, or has sent nothing for
                TREPAK_DEADLINE_SECONDS.
        """
        received: tuple[Any, Any] = load().trepak_alltoall_wait(self.ticket, **self._about)
        return received


def alltoall_async(tensor: Any, splits: Any = None, name: str | None = None) -> Alltoall:
    """Sends each rank its part of a tensor's rows, and goes on.

    Several may be under way. Those of one name are matched between ranks by their number: the
    first of a rank with the first of the others. Those of different names need no common order.
    Gradients flow back through an alltoall of their own.

    Args:
        tensor: the rows of rank 0, then those of rank 1 and so on. Of int32, int64, bfloat16,
            float32 or float64; the dtype and all dimensions but the first are the same on all
            ranks.
        splits: by rank, how many rows; the same number by default.
        name: the same on all ranks; by default that of all alltoalls without one.

    Returns:
        What `wait` is called on. Whoever drops it says that nobody waits.

    Raises:
        TypeError: the dtype can't be sent.
        ValueError: the rows can't be split evenly, and no splits were given.
        tf.errors.InvalidArgumentError: the splits do not add up to the rows.
        HorovodInternalError: a rank has died or left.
    """
    values = tf.convert_to_tensor(tf_variable(tensor))
    if values.dtype not in _DTYPES:
        wanted = ", ".join(dtype.name for dtype in _DTYPES)
        raise TypeError(
            f"alltoall_async can't send {values.dtype.name}, only {wanted}: cast the tensor."
        )
    session, label = opened(), name or "alltoall"
    by_rank = _even_splits(values) if splits is None else tf.cast(splits, tf.int64)
    ticket = _request(values, by_rank, session, label)
    return Alltoall(ticket, values.dtype, values.shape[1:], session, label)


def _request(values: Any, splits: Any, session: int, label: str) -> Any:
    return load().trepak_alltoall_request(values, splits, session=session, label=label)


def _even_splits(values: Any) -> Any:
    size, rows = basics.size(), values.shape[0] if values.shape.rank else None
    if values.shape.rank == 0 or (rows is not None and rows % size):
        raise ValueError(
            f"alltoall_async of a tensor of shape {values.shape} needs splits: its rows are not a "
            f"multiple of the {size} ranks."
        )
    return tf.fill([size], tf.shape(values, tf.int64)[0] // size)


def statistics() -> dict[str, Any]:
    """Returns what this rank's alltoalls have counted; nothing before the first one.

    exchanges: alltoalls that are over.
    bytes_sent: bytes of splits that went to other ranks.
    bytes_sent_over_ucx: of these, bytes that went over UCX; the others went over flows.
    held_up: times that splits had to wait for a receiver's credit.
    most_bytes_held: bytes of others' splits that were here at most, before they were taken.
    waiting_seconds: seconds from each wait to the last split, over all alltoalls.
    last_by_rank: by rank, how often its split came last.
    """
    return {} if _session is None else sessions.statistics("alltoall", _session)


def opened() -> int:
    """Returns the session of this job; opens it where there is none, which is a collective call."""
    global _session
    if _session is None or not sessions.is_open(_session):
        credit = int(config.value("TREPAK_ALLTOALL_CREDIT_BYTES"))
        with tf.init_scope():
            options = {"credit": credit, "transport": _transport()}
            _session = sessions.open_session("alltoall", options)
    return _session


def _transport() -> str:
    """Returns what carries alltoalls; a collective call.

    Raises:
        ValueError: ranks want different ones; raised on all of them.
    """
    name = "TREPAK_ALLTOALL_TRANSPORT"
    wanted: list[str] = exchange.gather(config.value(name), name)
    if len(set(wanted)) > 1:
        raise ValueError(f"{name} is, by rank, {', '.join(wanted)}: set it alike on all ranks.")
    return wanted[0]


# In the gradient the splits that came go back. Its ticket is the gradient of the ticket, so that
# computing goes on between its request and its wait, too.


@tf.RegisterGradient("TrepakAlltoallWait")
def _request_of_gradient(op: Any, rows: Any, _: Any) -> Any:
    return _request(rows, op.outputs[1], op.get_attr("session"), f"{_label_of(op)}/gradient")


@tf.RegisterGradient("TrepakAlltoallRequest")
def _wait_of_gradient(op: Any, ticket: Any) -> tuple[Any, None]:
    values, session = op.inputs[0], op.get_attr("session")
    gradient = Alltoall(ticket, values.dtype, values.shape[1:], session, _label_of(op))
    return gradient.wait()[0], None


def _label_of(op: Any) -> str:
    label = op.get_attr("label")
    return str(label.decode() if isinstance(label, bytes) else label)

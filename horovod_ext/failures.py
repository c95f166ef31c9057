"""Turns TensorFlow's report of a failed collective into Horovod's own exception.

Horovod fails a collective with a generic TensorFlow status; elastic mode, and people, act on
`HorovodInternalError`. TensorFlow makes its exceptions from status codes, deep inside a step, in
`fit` as in any tf.function: the one place to meet them all is the exception class itself.
"""

from __future__ import annotations

import functools
import re
from typing import Any

import horovod.tensorflow as hvd
import tensorflow as tf
from horovod.common.exceptions import HorovodInternalError

from trepak.horovod_ext import liveness

# What Horovod's core, trepak's flows, Gloo and MPI write when a peer is gone or Horovod was shut
# down.
_COLLECTIVE = re.compile(
    r"Horovod|trepak's flows|MPI_\w+ failed|gloo|Connection (closed|reset) by peer|Read error"
    r"|Timed out waiting|Application timeout",
    re.IGNORECASE,
)

# What GradientRound writes of a step that has pushed some of its gradients.
_HALF_A_STEP = "a step was interrupted"


class LostRankError(tf.errors.UnknownError, HorovodInternalError):
    """A collective failed, most likely because another rank died.

    Both the error that TensorFlow raises and Horovod's, so code that catches either goes on.
    """

    def __init__(self, node_def: Any, op: Any, message: str, *args: Any) -> None:
        """Makes the error from what TensorFlow says; the message names this rank and the remedy."""
        rank = str(hvd.rank()) if hvd.is_initialized() else "of unknown number"
        cause = str(message).strip().splitlines()[0].rstrip(".")
        try:
            who = liveness.gone()
        except Exception:  # whatever it is, the collective's own failure is what people must see
            who = ""
        if _HALF_A_STEP in cause:
            who = (
                "An exception of this rank in the midst of that step came before: look for it. Its "
                "gradients can't be taken back: load the checkpoint in a new process, or into a "
                "model that is compiled with a new optimizer."
            )
        elif who:
            who = f"{who[0].upper()}{who[1:]}: look for the first error in its output."
        else:
            who = (
                "If that is no reason, another rank has most likely died or left: look for the "
                "first error in the other ranks' output."
            )
        said = (
            f"rank {rank}: a collective failed: {cause}. {who} To survive this, run under "
            "trepak.elastic.run; what can't be elastic (RNA and the like) goes on from the last "
            "checkpoint."
        )
        super().__init__(node_def, op, said, *args)


def is_half_a_step(message: str) -> bool:
    """Tells whether an error's message means that a step's own exception came before it."""
    return _HALF_A_STEP in message


def is_collective_failure(message: str) -> bool:
    """Tells whether the message of a TensorFlow error means that a collective failed."""
    return bool(_COLLECTIVE.search(message))


@functools.cache
def raise_lost_ranks() -> None:
    """Makes TensorFlow raise LostRankError, not plain UnknownError, where a collective failed."""

    def new(cls: Any, node_def: Any = None, op: Any = None, message: Any = "", *args: Any) -> Any:
        if cls is tf.errors.UnknownError and is_collective_failure(str(message)):
            cls = LostRankError
        return Exception.__new__(cls, node_def, op, message, *args)

    tf.errors.UnknownError.__new__ = new

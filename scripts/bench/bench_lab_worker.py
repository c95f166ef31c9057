"""One rank of `trepak bench lab`: times pieces of emulated computing."""

from __future__ import annotations

from typing import Any

import trepak

# isort: split
import numpy as np
import tensorflow as tf

from trepak.ops import emulated_compute
from trepak.scripts.bench import rank
from trepak.scripts.bench.bench_lab import MILLISECONDS
from trepak.scripts.idle_watch import IdleWatch

_PER_CALL = 10  # pieces in one call of a graph, as a step has several layers
_UNCOUNTED = 2  # calls


def time_pieces(pieces: int) -> list[float]:
    """Returns how long each piece took, as the graph around it sees it, in milliseconds."""

    @tf.function
    def call() -> tf.Tensor:
        stamps = [tf.timestamp()]
        for _ in range(_PER_CALL):
            with tf.control_dependencies(stamps[-1:]):
                piece = emulated_compute(tf.ones([4]), MILLISECONDS)
            with tf.control_dependencies([piece]):
                stamps.append(tf.timestamp())
        return tf.stack(stamps)

    calls = [call().numpy() for _ in range(_UNCOUNTED + pieces // _PER_CALL)]
    return [float(t) for stamps in calls[_UNCOUNTED:] for t in 1000 * np.diff(stamps)]


def measure(pieces: int) -> dict[str, Any]:
    """Returns this rank's `times` in ms, and the share of the CPU that was `idle` meanwhile."""
    emulated_compute(tf.ones([1]), 1.0)  # loads the native library
    trepak.barrier()
    idle = IdleWatch()
    times = time_pieces(pieces)
    return {"times": times, "idle": idle.share()}


if __name__ == "__main__":
    rank.main(measure)

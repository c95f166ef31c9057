"""One rank of `trepak bench lab`: times pieces of emulated computing."""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path

import trepak

# isort: split
import tensorflow as tf

from trepak.ops import emulated_compute
from trepak.scripts.bench_lab import MILLISECONDS
from trepak.scripts.bench_report import IdleWatch

_UNCOUNTED = 10


def time_pieces(pieces: int) -> list[float]:
    """Returns how long each piece took, as its caller sees it, in milliseconds."""

    @tf.function
    def piece(x: tf.Tensor) -> tf.Tensor:
        return emulated_compute(x, MILLISECONDS)

    x = tf.ones([4])
    times = []
    for _ in range(_UNCOUNTED + pieces):
        began = time.perf_counter()
        piece(x).numpy()
        times.append(1000 * (time.perf_counter() - began))
    return times[_UNCOUNTED:]


def main() -> None:
    """Measures together with the other ranks; rank 0 writes what all measured."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--pieces", type=int, required=True)
    parser.add_argument("--output", type=Path, required=True)
    options = parser.parse_args()
    trepak.init()
    emulated_compute(tf.ones([1]), 1.0)  # loads the native library
    trepak.barrier()
    idle = IdleWatch()
    times = time_pieces(options.pieces)
    outcome = {"times": times, "idle": idle.share()}
    outcomes = trepak.allgather_object(outcome)
    if trepak.rank() == 0:
        options.output.write_text(json.dumps(outcomes))
    trepak.shutdown()


if __name__ == "__main__":
    main()

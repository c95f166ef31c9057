"""One rank of `trepak bench alltoall`: trepak's, Horovod's and MPI's alltoalls, one by one."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

import trepak

# isort: split
import numpy as np
import psutil
import tensorflow as tf
from mpi4py import MPI

from trepak.scripts.bench import rank
from trepak.scripts.bench.alltoall_schedule import delays

_UNROLLED = 5  # exchanges in one call of a graph
_FLOAT_BYTES = 4


def _arms(split_bytes: int) -> dict[str, Callable[[], Any]]:
    """Returns functions that make `_UNROLLED` exchanges of even splits, one after the other."""
    size, numbers = trepak.size(), split_bytes // _FLOAT_BYTES
    rows = tf.zeros([size, numbers])
    ones = [1] * size

    @tf.function
    def ours(rows: tf.Tensor) -> tf.Tensor:
        for _ in range(_UNROLLED):
            pending = trepak.alltoall_async(rows, ones, name=f"bench.{split_bytes}")
            rows = tf.ensure_shape(pending.wait()[0], [size, numbers])
        return rows

    @tf.function
    def horovods(rows: tf.Tensor) -> tf.Tensor:
        for number in range(_UNROLLED):
            received, _ = trepak.alltoall(rows, ones, name=f"bench.{split_bytes}.{number}")
            rows = tf.ensure_shape(received, [size, numbers])
        return rows

    exchange = _mpi_exchange(numbers)

    def mpis() -> None:
        for _ in range(_UNROLLED):
            exchange().Wait()

    return {"trepak": lambda: ours(rows), "Horovod": lambda: horovods(rows), "MPI": mpis}


def _mpi_exchange(numbers: int) -> Callable[[], Any]:
    """Returns what begins an Ialltoallv of even splits, which keeps its buffers itself."""
    size = trepak.size()
    counts, places = np.full(size, numbers), np.arange(size) * numbers

    def begin() -> Any:
        sent, got = np.zeros((size, numbers), "float32"), np.empty((size, numbers), "float32")
        parts = counts, places
        return MPI.COMM_WORLD.Ialltoallv([sent, parts, MPI.FLOAT], [got, parts, MPI.FLOAT])

    return begin


def even(sizes: Sequence[int], rounds: int, seconds: float) -> list[dict[str, Any]]:
    """Times even splits: arms take turns, each as often as fits into the seconds.

    Returns:
        Of each size and arm, ms for each exchange by round; and what came in through the link.
    """
    found = []
    for split_bytes in sizes:
        arms = _arms(split_bytes)
        calls = {name: _calls(run, seconds) for name, run in arms.items()}
        times: dict[str, list[float]] = {name: [] for name in arms}
        came: dict[str, float] = dict.fromkeys(arms, 0.0)
        for _ in range(rounds):
            for name, run in arms.items():
                trepak.barrier()
                before, began = _received(), time.perf_counter()
                for _ in range(calls[name]):
                    run()
                took = time.perf_counter() - began
                came[name] = max(came[name], (_received() - before) / took)
                times[name].append(1000 * took / calls[name] / _UNROLLED)
        found.append({"split_bytes": split_bytes, "times": times, "bytes_per_second": came})
    return found


def _calls(run: Callable[[], Any], seconds: float) -> int:
    """Returns how often something fits into the seconds, the same on all ranks; runs it twice."""
    run()
    trepak.barrier()
    began = time.perf_counter()
    run()
    took = time.perf_counter() - began
    return int(max(1, min(trepak.allgather_object(seconds / took))))


def _received() -> int:
    """Returns the bytes that this host's link has brought; 0 where there is none of a lab's."""
    found = psutil.net_io_counters(pernic=True).get("eth0")
    return 0 if found is None else int(found.bytes_recv)


def skewed(split_bytes: int, iterations: int, windows: Sequence[int]) -> list[dict[str, Any]]:
    """Times the skewed schedule; returns, by window, ms of each arm from the common start."""
    computed = delays(trepak.size(), iterations)[trepak.rank()]
    size, numbers = trepak.size(), split_bytes // _FLOAT_BYTES
    rows, ones = tf.zeros([size, numbers]), tf.ones([size], tf.int64)
    begin_mpi = _mpi_exchange(numbers)
    arms: dict[str, tuple[Callable[[], Any], Callable[[Any], Any]]] = {
        "trepak": (
            lambda: trepak.alltoall_async(rows, ones, name="skewed"),
            lambda pending: pending.wait(),
        ),
        "MPI": (begin_mpi, lambda pending: pending.Wait()),
    }
    found = []
    for window in windows:
        times = {}
        for name, (begin, wait) in arms.items():
            wait(begin())
            trepak.barrier()
            MPI.COMM_WORLD.Barrier()
            times[name] = _run_skewed(computed, window, begin, wait)
        found.append({"window": window, "times": times})
    return found


def _run_skewed(
    computed: Any, window: int, begin: Callable[[], Any], wait: Callable[[Any], Any]
) -> float:
    under_way: list[Any] = []
    began = time.perf_counter()
    for milliseconds in computed:
        if len(under_way) == window:
            wait(under_way.pop(0))
        time.sleep(milliseconds / 1000)
        under_way.append(begin())
    for pending in under_way:
        wait(pending)
    return 1000 * (time.perf_counter() - began)


def measure(spec: dict[str, Any]) -> dict[str, Any]:
    """Returns this rank's figures."""
    return {
        "iterations": spec["iterations"],
        "even": even(spec["sizes"], spec["rounds"], spec["seconds"]),
        "skewed": skewed(spec["skewed_bytes"], spec["iterations"], spec["windows"]),
    }


if __name__ == "__main__":
    rank.main(measure)

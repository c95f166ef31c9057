"""The nodes that tasks run on: this process alone, or all ranks of a Horovod job."""

from __future__ import annotations

import abc
import functools
import io
import json
import os
import warnings
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import numpy as np
import tensorflow as tf

from trepak.horovod_ext import basics, collectives, exchange
from trepak.horovod_ext.chunk_mover import Arrived, ChunkMover, Expected, Outgoing

_T = TypeVar("_T")
Arrays = dict[str, np.ndarray]
_SIZES = ("HOROVOD_SIZE", "OMPI_COMM_WORLD_SIZE")  # of a job, as launchers tell its processes


class Cluster(abc.ABC):
    """What the ranks of a job do together; each call is made by all of them.

    Attributes:
        rank: this process's.
        size: how many there are.
    """

    rank: int = 0
    size: int = 1

    @abc.abstractmethod
    def gather(self, fact: Any, about: str) -> list[Any]:
        """Returns the facts of all ranks, of what JSON can hold."""

    @abc.abstractmethod
    def sum(self, arrays: Sequence[np.ndarray]) -> list[np.ndarray]:
        """Returns the sums over ranks of arrays of float64, of the same shapes on all ranks."""

    @abc.abstractmethod
    def gather_arrays(self, arrays: Arrays, about: str) -> list[Arrays]:
        """Returns the arrays of all ranks, by names, of any shapes."""

    @abc.abstractmethod
    def pass_on(self, arrays: Arrays, about: str) -> Arrays:
        """Gives the next rank arrays, by names; returns those of the rank before."""

    @abc.abstractmethod
    def move(self, outgoing: Sequence[Outgoing], expected: Sequence[Expected]) -> list[Arrived]:
        """Moves chunks between ranks; see `ChunkMover.move`."""

    def take_arrived(self) -> list[Arrived]:
        """Returns what had come of moves that failed, once; see `ChunkMover`."""
        return []

    def together(self, make: Callable[[], tuple[_T, Any]], about: str) -> tuple[_T, list[Any]]:
        """Makes something on each rank, and gathers what they tell of it.

        Args:
            make: returns what is made, and a fact about it, of what JSON can hold.
            about: what ranks do, the same on all of them.

        Returns:
            What this rank has made, and the facts of all ranks.

        Raises:
            ValueError: another rank has failed; the message names it.
            Exception: what `make` raises.
        """
        try:
            made, fact = make()
        except Exception as error:  # all ranks end with it
            self.gather([None, f"{type(error).__name__}: {error}"], about)
            raise
        everyone = self.gather([fact, None], about)
        for rank, (_, failure) in enumerate(everyone):
            if failure is not None:
                raise ValueError(f"rank {rank} has failed: {failure}")
        return made, [theirs for theirs, _ in everyone]


class OneProcess(Cluster):
    """All tasks are in this process."""

    def gather(self, fact: Any, about: str) -> list[Any]:
        """See `Cluster`."""
        return [json.loads(json.dumps(fact))]

    def sum(self, arrays: Sequence[np.ndarray]) -> list[np.ndarray]:
        """See `Cluster`."""
        return list(arrays)

    def gather_arrays(self, arrays: Arrays, about: str) -> list[Arrays]:
        """See `Cluster`."""
        return [arrays]

    def pass_on(self, arrays: Arrays, about: str) -> Arrays:
        """See `Cluster`."""
        return arrays

    def move(self, outgoing: Sequence[Outgoing], expected: Sequence[Expected]) -> list[Arrived]:
        """See `Cluster`; there is no other rank."""
        assert not outgoing and not expected
        return []


class HorovodRanks(Cluster):
    """The ranks of a Horovod job."""

    def __init__(self) -> None:
        """Begins with the ranks that there are."""
        self.rank, self.size = basics.rank(), basics.size()

    def gather(self, fact: Any, about: str) -> list[Any]:
        """See `Cluster`."""
        return exchange.gather(fact, about)

    def sum(self, arrays: Sequence[np.ndarray]) -> list[np.ndarray]:
        """See `Cluster`."""
        tensors = [tf.convert_to_tensor(array) for array in arrays]
        sums = collectives.grouped_allreduce(tensors, op=collectives.Sum, name="chicle_sums")
        return [one.numpy() for one in sums]

    def gather_arrays(self, arrays: Arrays, about: str) -> list[Arrays]:
        """See `Cluster`."""
        return [unpacked(data) for data in exchange.gather_bytes(packed(arrays), about)]

    def pass_on(self, arrays: Arrays, about: str) -> Arrays:
        """See `Cluster`."""
        return unpacked(exchange.pass_on(packed(arrays), about))

    def move(self, outgoing: Sequence[Outgoing], expected: Sequence[Expected]) -> list[Arrived]:
        """See `Cluster`."""
        return chunk_mover().move(outgoing, expected)

    def take_arrived(self) -> list[Arrived]:
        """See `Cluster`."""
        return chunk_mover().take_arrived()


@functools.cache
def chunk_mover() -> ChunkMover:
    """Returns what moves chunks for all trainings of this process."""
    return ChunkMover()


def packed(arrays: Arrays) -> bytes:
    """Returns arrays as they travel.

    Raises:
        TypeError: one is of no dtype that NumPy knows by itself.
    """
    for name, array in arrays.items():
        if np.asarray(array).dtype.kind in "OV":
            raise TypeError(
                f"{name!r} is of {np.asarray(array).dtype}, and can't be sent to other ranks: make "
                "it an array of numbers or of text."
            )
    file = io.BytesIO()
    # Names begin with what no parameter of savez does.
    np.savez(file, allow_pickle=False, **{f"={k}": v for k, v in arrays.items()})  # type: ignore[arg-type]
    return file.getvalue()


def unpacked(data: bytes) -> Arrays:
    """Returns the arrays that `packed` was given."""
    with np.load(io.BytesIO(data), allow_pickle=False) as arrays:
        return {name[1:]: array for name, array in arrays.items()}


def cluster_of_job() -> Cluster:
    """Returns the ranks of the job that runs; this process alone where Horovod was not started."""
    if not basics.is_initialized():
        started = max(int(os.environ.get(name, 1)) for name in _SIZES)
        if started > 1:
            warnings.warn(
                f"this is one of {started} processes, and trains alone: call trepak.init() first "
                "to have all of them train together.",
                stacklevel=3,
            )
        return OneProcess()
    return OneProcess() if basics.size() == 1 else HorovodRanks()

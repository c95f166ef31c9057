"""The nodes that tasks run on: this process alone, or all ranks of a Horovod job."""

from __future__ import annotations

import abc
import functools
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from trepak.horovod_ext import basics, collectives, exchange
from trepak.horovod_ext import chunk_mover as chunk_movers
from trepak.tf_plugins.chicle.chunk import Chunk


class Outgoing(NamedTuple):
    """A chunk that goes to a task of another rank."""

    rank: int
    task: int
    chunk: Chunk


class Expected(NamedTuple):
    """A chunk that comes from another rank to a task of this one."""

    rank: int
    task: int
    chunk: int


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
    def move(
        self, outgoing: Sequence[Outgoing], expected: Sequence[Expected]
    ) -> list[tuple[int, Chunk]]:
        """Moves chunks between ranks.

        Args:
            outgoing: what leaves this rank.
            expected: what comes here.

        Returns:
            The chunks that have come, each with its task.

        Raises:
            HorovodInternalError: another rank has died or left.
        """

    def take_arrived(self) -> list[tuple[int, Chunk]]:
        """Returns what had come of moves that failed, once; see `move`."""
        return []


class OneProcess(Cluster):
    """All tasks are in this process."""

    def gather(self, fact: Any, about: str) -> list[Any]:
        """See `Cluster`."""
        return [fact]

    def sum(self, arrays: Sequence[np.ndarray]) -> list[np.ndarray]:
        """See `Cluster`."""
        return list(arrays)

    def move(
        self, outgoing: Sequence[Outgoing], expected: Sequence[Expected]
    ) -> list[tuple[int, Chunk]]:
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

    def move(
        self, outgoing: Sequence[Outgoing], expected: Sequence[Expected]
    ) -> list[tuple[int, Chunk]]:
        """See `Cluster`."""
        mover = chunk_mover()
        numbers = [chunk_movers.Outgoing(one.chunk.number, one.rank, one.task) for one in outgoing]
        wanted = [chunk_movers.Expected(one.chunk, one.rank, one.task) for one in expected]
        return [(one.task, Chunk(one.chunk)) for one in mover.move(numbers, wanted)]

    def take_arrived(self) -> list[tuple[int, Chunk]]:
        """See `Cluster`."""
        return [(one.task, Chunk(one.chunk)) for one in chunk_mover().take_arrived()]


@functools.cache
def chunk_mover() -> chunk_movers.ChunkMover:
    """Returns what moves chunks for all trainings of this process."""
    return chunk_movers.ChunkMover()


def cluster_of_job() -> Cluster:
    """Returns the ranks of the job that runs; this process alone where Horovod was not started."""
    alone = not basics.is_initialized() or basics.size() == 1
    return OneProcess() if alone else HorovodRanks()

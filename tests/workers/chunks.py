"""Moves of chunks between ranks: what arrives, in which memory, what errors leave behind."""

from __future__ import annotations

import hashlib
from typing import Any

import numpy as np
import pytest
from harness import case
from horovod.common.exceptions import HorovodInternalError

import trepak.keras as hvd
from trepak.horovod_ext import exchange
from trepak.horovod_ext.chunk_mover import Arrived, ChunkMover, Expected, Outgoing
from trepak.tf_plugins.chicle.chunk import Chunk, Field
from trepak.tf_plugins.chicle.ledger import Ledger, Move

TASKS = 2  # of a rank
PARTS = ("starts", "columns", "values", "committed")


def make_chunk(number: int, samples: int = 40) -> Chunk:
    """Returns a chunk whose content its id decides: dense ones, and of odd ids, sparse ones too."""
    rng = np.random.default_rng(number)
    counts = rng.integers(0, 9, samples)
    fields = [Field("x", np.float32, (3, 5)), Field("alpha", np.float64, (2,), is_state=True)]
    if number % 2:
        fields.append(Field("rows", np.float32, (99,), is_sparse=True, nonzeros=int(counts.sum())))
    chunk = Chunk.make(number, samples, fields)
    chunk.view("x", writable=True)[:] = rng.normal(size=(samples, 3, 5))
    chunk.view("alpha", writable=True)[:] = rng.normal(size=(samples, 2))
    if number % 2:
        chunk.view("rows", "starts", writable=True)[1:] = np.cumsum(counts)
        chunk.view("rows", "columns", writable=True)[:] = rng.integers(0, 99, counts.sum())
        chunk.view("rows", writable=True)[:] = rng.normal(size=counts.sum())
        chunk.check()
    return chunk


def arrays_of(chunk: Chunk) -> list[np.ndarray]:
    """Returns all arrays of a chunk, where they lie."""
    found = []
    for name, field in chunk.fields.items():
        parts = PARTS[:3] if field.is_sparse else PARTS[2 : 4 if field.is_state else 3]
        found += [chunk.view(name, part) for part in parts]
    return found


def digest(chunk: Chunk) -> str:
    """Returns what is equal for chunks of equal content."""
    found = hashlib.blake2s(repr((chunk.id, chunk.samples, chunk.fields)).encode())
    for array in arrays_of(chunk):
        found.update(np.ascontiguousarray(array).tobytes())
    return found.hexdigest()


class Rank:
    """The chunks of this rank's tasks, by id, and a mover for them."""

    def __init__(self, chunks: int, samples: int = 40, transport: str = "auto") -> None:
        self.ledger = Ledger.of([number % (hvd.size() * TASKS) for number in range(chunks)])
        self.mover = ChunkMover(transport)
        mine = [task for task in range(hvd.size() * TASKS) if task // TASKS == hvd.rank()]
        self.tasks: dict[int, dict[int, Chunk]] = {
            task: {number: make_chunk(number, samples) for number in self.ledger.chunks_of(task)}
            for task in mine
        }

    def move(self, moves: list[Move]) -> list[Arrived]:
        """Makes this rank's share of moves; returns what has arrived."""
        outgoing, expected = [], []
        for one in moves:
            if one.source in self.tasks:
                number = self.tasks[one.source][one.chunk].number
                outgoing.append(Outgoing(number, one.target // TASKS, one.target))
            if one.target in self.tasks:
                expected.append(Expected(one.chunk, one.source // TASKS, one.target))
        arrived = self.mover.move(outgoing, expected)
        for one in moves:
            if one.source in self.tasks:
                del self.tasks[one.source][one.chunk]
            self.ledger.move(one)
        self.take(arrived)
        return arrived

    def take(self, arrived: list[Arrived]) -> None:
        for one in arrived:
            self.tasks[one.task][one.id] = Chunk(one.chunk)

    def draw(self, rng: np.random.Generator) -> list[Move]:
        """Returns moves that all ranks draw alike."""
        tasks = hvd.size() * TASKS
        drawn = []
        for number, owner in enumerate(self.ledger.owners):
            target = int(rng.integers(tasks))
            if rng.random() < 0.5 and target != owner:
                drawn.append(Move(number, int(owner), target))
        return drawn

    def check(self, samples: int = 40) -> None:
        """Checks that each chunk has one owner of all ranks', and is as it was made."""
        mine = {str(task): sorted(chunks) for task, chunks in self.tasks.items()}
        held = exchange.gather(mine, "chunks by task")
        self.ledger.check({int(task): ids for rank in held for task, ids in rank.items()})
        for chunks in self.tasks.values():
            for number, chunk in chunks.items():
                assert chunk.id == number
                assert digest(chunk) == digest(make_chunk(number, samples)), number


@case
def what_moves_stays_what_it_was() -> dict[str, Any]:
    counted = {}
    for transport in ("auto", "flows"):
        rank, rng = Rank(24, transport=transport), np.random.default_rng(1)
        for _ in range(12):
            rank.move(rank.draw(rng))
            rank.check()
        counted = rank.mover.statistics()
        assert counted["moves"] == 12 and counted["chunks_sent"] > 0
        rank.mover.close()
        assert transport == "auto" or counted["bytes_sent_over_ucx"] == 0
    return counted


@case
def state_goes_along() -> None:
    rank = Rank(8)
    rng = np.random.default_rng(2)
    for iteration in range(1, 5):
        for chunks in rank.tasks.values():
            for chunk in chunks.values():
                chunk.view("alpha", writable=True)[:] = 100 * iteration + chunk.id
        rank.move(rank.draw(rng))
        for chunks in rank.tasks.values():
            for chunk in chunks.values():
                assert np.all(chunk.view("alpha") == 100 * iteration + chunk.id)
    rank.mover.close()


@case
def memory_is_adopted() -> list[Any]:
    """Blocks are counted whole, and nothing copies them: small ones and some of several MiB."""
    seen = []
    for transport, samples in (("auto", 40), ("auto", 100_000), ("flows", 100_000)):
        rank = Rank(2 * hvd.size() * TASKS, samples, transport)
        tasks = hvd.size() * TASKS
        owners = rank.ledger.owners
        moves = [Move(n, int(o), (int(o) + TASKS) % tasks) for n, o in enumerate(owners)]
        sent = sum(chunk.bytes for task in rank.tasks.values() for chunk in task.values())
        arrived = rank.move(moves)
        here = [rank.tasks[one.task][one.id] for one in arrived]
        counted = rank.mover.statistics()
        assert len(here) == 4
        assert counted["bytes_sent"] == sent
        assert counted["bytes_received"] == sum(chunk.bytes for chunk in here)
        assert counted["chunks_sent"] == counted["chunks_received"] == 4
        assert counted["bytes_sent_over_ucx"] in (0, sent)
        goes_over_ucx = counted["bytes_sent_over_ucx"] == sent
        if goes_over_ucx or samples > 40:
            assert counted["bytes_copied"] == 0, counted
        for chunk in here:
            assert all(array.ctypes.data % 64 == 0 for array in arrays_of(chunk))
        rank.check(samples)
        rank.mover.close()
        seen.append(counted)
    return seen


@case
def a_chunk_that_is_not_expected_is_an_error() -> None:
    """On all ranks; nothing is lost, and the next move is as if this one had not been."""
    rank = Rank(4 * hvd.size())
    rank.move([])
    exchange.gather(None, "that no rank is in that move")
    good = Move(2 * TASKS - 1, 2 * TASKS - 1, 0)  # from rank 1 to rank 0
    outgoing, expected = [], [Expected(0, 0, hvd.rank() * TASKS)]  # which others wait for in vain
    if hvd.rank() == 0:
        outgoing = [Outgoing(rank.tasks[0][0].number, 1, TASKS)]
        expected = [Expected(good.chunk, 1, 0)]
    elif hvd.rank() == 1:
        outgoing = [Outgoing(rank.tasks[good.source][good.chunk].number, 0, 0)]
        expected = [Expected(1, 0, TASKS)]
    with pytest.raises(
        HorovodInternalError, match=r"rank 0 sent chunk 0 for task 2 in move 1, whi"
    ):
        rank.mover.move(outgoing, expected)
    for one in rank.mover.take_arrived():  # it may have come before the error
        assert (hvd.rank(), one.id, one.task) == (0, good.chunk, 0)
        assert digest(Chunk(one.chunk)) == digest(make_chunk(good.chunk))
    assert rank.mover.take_arrived() == []
    rank.check()
    rank.move([good])
    rank.check()
    rank.mover.close()


@case
def a_chunk_that_was_dropped_is_an_error() -> None:
    rank = Rank(2 * hvd.size() * TASKS)
    outgoing = [Outgoing(10**9, 1, TASKS)] if hvd.rank() == 0 else []
    expected = [] if hvd.rank() == 0 else [Expected(0, 0, hvd.rank() * TASKS)]
    with pytest.raises(
        HorovodInternalError, match="is no chunk: keep chunks until they have moved"
    ):
        rank.mover.move(outgoing, expected)
    rank.check()


@case
def transports_have_names() -> None:
    import tensorflow as tf

    with pytest.raises(tf.errors.InvalidArgumentError, match="flows, auto or ucx, not pigeons"):
        ChunkMover("pigeons").move([], [])

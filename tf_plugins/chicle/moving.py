"""The tasks of a rank, and the moves of chunks between tasks, here and on other ranks."""

from __future__ import annotations

import collections
from collections.abc import Iterable, Sequence

from trepak.horovod_ext.chunk_mover import Expected, Outgoing
from trepak.tf_plugins.chicle.chunk import Chunk
from trepak.tf_plugins.chicle.chunk_store import ChunkStore
from trepak.tf_plugins.chicle.cluster import Cluster
from trepak.tf_plugins.chicle.ledger import Ledger, LedgerError, Move


class Tasks:
    """What this rank has of all tasks, and who has which chunk.

    Attributes:
        stores: by task of this rank, its chunks.
        ledger: of all chunks.
        ranks: by task, where it is.
        sizes: by chunk, how many samples it has.
        leaving: tasks that were given notice.
    """

    def __init__(
        self,
        stores: dict[int, ChunkStore],
        ledger: Ledger,
        ranks: dict[int, int],
        sizes: Sequence[int],
    ) -> None:
        """Checks that this rank's tasks have what the ledger says.

        Raises:
            LedgerError: they don't.
        """
        self.stores, self.ledger, self.ranks, self.sizes = stores, ledger, ranks, sizes
        self.leaving: set[int] = set()
        self._added: dict[int, list[int]] = collections.defaultdict(list)
        self._removed: dict[int, list[int]] = collections.defaultdict(list)
        self.check()

    @property
    def working(self) -> list[int]:
        """The tasks that have chunks, on whichever rank: the data parallelism."""
        return [task for task, chunks in self.ledger.count(self.ranks).items() if chunks]

    def check(self) -> None:
        """Checks that this rank's tasks have what the ledger says.

        Raises:
            LedgerError: they don't, or a chunk has no owner.
        """
        self.ledger.check({task: store.ids for task, store in self.stores.items()})
        if self.ledger.unowned():
            raise LedgerError(f"nobody has chunk {self.ledger.unowned()[0]}.")

    def add(self, task: int, rank: int, is_here: bool) -> None:
        """Adds a task without chunks, with a store where it is this rank's."""
        self.ranks[task] = rank
        if is_here:
            checked = any(store.checked for store in self.stores.values())
            self.stores[task] = ChunkStore(checked)

    def drop(self, task: int) -> None:
        """Forgets a task that has no chunks any more.

        Raises:
            LedgerError: it has some.
        """
        if chunks := self.ledger.chunks_of(task):
            raise LedgerError(f"task {task} can't end: it still has chunk {chunks[0]}.")
        self.leaving.discard(task)
        self.stores.pop(task, None)
        del self.ranks[task]

    def move(self, moves: Iterable[Move], cluster: Cluster) -> None:
        """Has chunks change hands, on all ranks together, between two iterations.

        Raises:
            LedgerError: a chunk is not its source's, or not where the ledger says.
            HorovodInternalError: another rank has died or left; nothing has changed hands on this
                rank, and what had arrived is in `cluster.take_arrived`.
        """
        moves = _merged(moves)
        for move in moves:
            self.ledger.check_owner(move.chunk, move.source)
        self._move_between_ranks(moves, cluster)
        for move in moves:
            if self.ranks[move.source] == self.ranks[move.target] == cluster.rank:
                self._give(move.target, self._taken(move))
            self.ledger.move(move)
        self.check()

    def _move_between_ranks(self, moves: Sequence[Move], cluster: Cluster) -> None:
        here, there = self.ranks, cluster.rank
        between = [move for move in moves if here[move.source] != here[move.target]]
        if not between:
            return
        expected = [
            Expected(move.chunk, here[move.source], move.target)
            for move in between
            if here[move.target] == there
        ]
        leaving: list[tuple[Move, Chunk]] = []
        try:
            for move in between:
                if here[move.source] == there:
                    leaving.append((move, self._taken(move)))
            outgoing = [Outgoing(c.number, here[m.target], m.target) for m, c in leaving]
            arrived = cluster.move(outgoing, expected)
        except BaseException:
            for move, chunk in leaving:
                self.stores[move.source].add(chunk)
                self._removed[move.source].remove(move.chunk)
            raise
        for one in arrived:
            self._give(one.task, Chunk(one.chunk))

    def _taken(self, move: Move) -> Chunk:
        chunk = self.stores[move.source].take(move.chunk)
        self._removed[move.source].append(move.chunk)
        return chunk

    def take_changes(self) -> dict[int, tuple[list[int], list[int]]]:
        """Returns by task which chunks have come and gone since the last call."""
        tasks = set(self._added) | set(self._removed)
        changes = {task: (self._added[task], self._removed[task]) for task in tasks}
        self._added.clear()
        self._removed.clear()
        return changes

    def _give(self, task: int, chunk: Chunk) -> None:
        self.stores[task].add(chunk)
        self._added[task].append(chunk.id)


def _merged(moves: Iterable[Move]) -> list[Move]:
    """Returns one move for each chunk that several moves take along."""
    first: dict[int, int] = {}
    last: dict[int, int] = {}
    for move in moves:
        first.setdefault(move.chunk, move.source)
        last[move.chunk] = move.target
    return [
        Move(chunk, source, last[chunk]) for chunk, source in first.items() if source != last[chunk]
    ]

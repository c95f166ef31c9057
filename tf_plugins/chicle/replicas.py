"""Copies of a rank's chunks on the next rank, for the case that it dies.

They save reading the source again, at the price of as much memory as the chunks take. A copy is of
the samples; what they had as state in a commit is kept with the commit.
"""

from __future__ import annotations

from trepak.horovod_ext.chunk_mover import Expected, Outgoing
from trepak.tf_plugins.chicle.chunk import Chunk
from trepak.tf_plugins.chicle.chunk_store import ChunkStore
from trepak.tf_plugins.chicle.cluster import Cluster

REPLICA = -1  # the task of a copy


class Replicas:
    """The copies that this rank has, of chunks of the rank before it.

    Attributes:
        held: by the chunks' ids.
    """

    def __init__(self, wanted: bool) -> None:
        """Makes it without copies.

        Args:
            wanted: whether there are to be any; the same on all ranks.
        """
        self._wanted = wanted
        self.held: dict[int, Chunk] = {}

    def add(self, copy: Chunk) -> None:
        """Takes a copy."""
        self.held[copy.id] = copy

    def take(self, chunk: int) -> Chunk:
        """Gives a copy away, to be the chunk."""
        return self.held.pop(chunk)

    def bring_up(self, store: ChunkStore, cluster: Cluster) -> None:
        """Has each rank keep copies of what the rank before it has now; a collective call.

        Only what a rank does not have yet is sent.

        Raises:
            HorovodInternalError: another rank has died or left.
        """
        if not self._wanted or cluster.size == 1:
            return
        told = cluster.gather([store.ids, sorted(self.held)], "the replicas")
        before, after = cluster.rank - 1, (cluster.rank + 1) % cluster.size
        theirs = set(told[before][0])
        self.held = {chunk: copy for chunk, copy in self.held.items() if chunk in theirs}
        wanting = set(store.ids) - set(told[after][1])
        copies = [chunk.copy() for chunk in store.chunks() if chunk.id in wanting]
        moved = cluster.move(
            [Outgoing(copy.number, after, REPLICA) for copy in copies],
            [
                Expected(chunk, before % cluster.size, REPLICA)
                for chunk in sorted(theirs - set(self.held))
            ],
        )
        for arrived in moved:
            self.add(Chunk(arrived.chunk))

"""Gives chunks to tasks at random, wherever they were read (Chicle, section 5.2)."""

from __future__ import annotations

import numpy as np

from trepak.tf_plugins.chicle.chunk_store import ChunkStore
from trepak.tf_plugins.chicle.cluster import Cluster
from trepak.tf_plugins.chicle.cutting import Cutting
from trepak.tf_plugins.chicle.ledger import Ledger, Move
from trepak.tf_plugins.chicle.moving import Tasks


def place(
    cutting: Cutting, tasks: int, cluster: Cluster, seed: int = 0, checked: bool = False
) -> Tasks:
    """Cuts this rank's samples, and returns the tasks of this rank with chunks of all ranks.

    A collective call. Uni-tasks are as many as ranks; of micro-tasks each rank has several.

    Args:
        cutting: of this rank's part of the samples.
        tasks: how many of all ranks; the first one is rank 0's, and so on in turn.
        cluster: the ranks.
        seed: who gets which chunk depends on it alone.
        checked: see `ChunkStore`.

    Raises:
        ValueError: there are fewer chunks than tasks.
    """
    sizes: list[list[int]] = cluster.gather(cutting.sizes, "the chunks")
    count = sum(map(len, sizes))
    if count < tasks:
        tasks = max(1, count)
    first = sum(map(len, sizes[: cluster.rank]))
    ranks = {task: task % cluster.size for task in range(tasks)}
    # Each chunk begins with a task of the rank that has read it, and moves from there.
    readers = [rank for rank, some in enumerate(sizes) for _ in some]
    mine = cluster.rank % tasks
    stores = {task: ChunkStore(checked) for task, rank in ranks.items() if rank == cluster.rank}
    for chunk in cutting.chunks(first):
        stores[mine].add(chunk)
    placed = Tasks(stores, Ledger.of([rank % tasks for rank in readers]), ranks, sum(sizes, []))
    wanted = Ledger(count)
    wanted.assign_randomly(range(tasks), np.random.default_rng(seed))
    moves = zip(placed.ledger.owners, wanted.owners, strict=True)
    placed.move(
        [
            Move(chunk, int(source), int(target))
            for chunk, (source, target) in enumerate(moves)
            if source != target
        ],
        cluster,
    )
    placed.take_changes()
    return placed

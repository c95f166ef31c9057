"""Gives chunks to tasks at random, wherever they were read (Chicle, section 5.2)."""

from __future__ import annotations

import itertools

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
        tasks: how many of all ranks, at most as many as chunks; the first one is rank 0's, and so
            on in turn.
        cluster: the ranks.
        seed: who gets which chunk depends on it alone.
        checked: see `ChunkStore`.

    Raises:
        ValueError: there are to be no tasks.
        HorovodInternalError: another rank has died or left.
    """
    if tasks < 1:
        raise ValueError(f"there must be at least one task, got {tasks}.")
    sizes: list[list[int]] = cluster.gather(cutting.sizes, "the chunks")
    all_sizes = list(itertools.chain(*sizes))
    tasks = max(1, min(tasks, len(all_sizes)))
    # What a rank has read is, until it has been dealt, that of a task of this rank's own.
    readers = [tasks + rank for rank, some in enumerate(sizes) for _ in some]
    ranks = {task: task % cluster.size for task in range(tasks)}
    ranks |= {tasks + rank: rank for rank in range(cluster.size)}
    stores = {task: ChunkStore(checked) for task, rank in ranks.items() if rank == cluster.rank}
    for chunk in cutting.chunks(first_id=sum(map(len, sizes[: cluster.rank]))):
        stores[tasks + cluster.rank].add(chunk)
    placed = Tasks(stores, Ledger.of(readers), ranks, all_sizes)
    dealt = Ledger(len(all_sizes))
    dealt.assign_randomly(range(tasks), np.random.default_rng(seed))
    owners = zip(readers, dealt.owners, strict=True)
    placed.move(
        [Move(chunk, reader, int(owner)) for chunk, (reader, owner) in enumerate(owners)], cluster
    )
    placed.take_changes()
    for rank in range(cluster.size):
        placed.drop(tasks + rank)
    return placed

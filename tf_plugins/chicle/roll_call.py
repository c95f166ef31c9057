"""The roll call: who is there, with which chunks, after ranks have come, left or died.

All ranks work it out alike from what each tells: nothing depends on who was in the job before.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from trepak.tf_plugins.chicle.ledger import NOBODY, LedgerError


@dataclass(frozen=True)
class Present:
    """What a rank tells.

    Attributes:
        task: its own; None: it is new.
        next_task: a number that no task has had, as far as the rank knows.
        chunks: the ids of those that it has.
        versions: iterations after which it has the state of its chunks and of its trainer: that of
            its last commit, and, if it is between two iterations, of now.
        kept: by version, the ids of chunks whose state of then it has, wherever they are.
        replicas: the ids of chunks that it has copies of.
        is_leaving: whether it was given notice.
        is_unsound: whether some state was lost, and no commit has followed.
    """

    task: int | None
    next_task: int
    chunks: list[int]
    versions: list[int]
    kept: dict[str, list[int]] = field(default_factory=dict)
    replicas: list[int] = field(default_factory=list)
    is_leaving: bool = False
    is_unsound: bool = False


@dataclass(frozen=True)
class Roll:
    """What all ranks make of it.

    Attributes:
        version: the iteration that they go on from; None: nobody has begun.
        giver: a rank that has the state of then.
        ranks: by task, where it is.
        owners: by chunk, its task; nobody: it is lost.
        copies: by lost chunk, a task that has a copy, if one has.
        new: tasks that have no chunks.
        leaving: tasks that were given notice.
        next_task: a number that no task has had.
    """

    version: int | None
    giver: int
    ranks: dict[int, int]
    owners: np.ndarray
    copies: dict[int, int]
    new: list[int]
    leaving: list[int]
    next_task: int


def call_roll(everyone: Sequence[Present], chunks: int) -> Roll:
    """Returns what all ranks go on from.

    Args:
        everyone: by rank.
        chunks: how many there are.

    Returns:
        The latest version that all ranks have which have any, and in which no state of a lost chunk
        is lost, if there is one; new tasks with numbers that none had; of a chunk that two tasks
        have, as a move between them was not ended, the lower one.

    Raises:
        LedgerError: ranks have no version in common.
    """
    has_state = [rank for rank, one in enumerate(everyone) if one.versions]
    common = set.intersection(*(set(everyone[rank].versions) for rank in has_state or [0]))
    if has_state and not common:
        told = {rank: everyone[rank].versions for rank in has_state}
        raise LedgerError(f"ranks have no state of the same iteration: {told}.")
    tasks, next_task = _numbered(everyone)
    owners = np.full(chunks, NOBODY, np.int64)
    for task, rank in sorted(zip(tasks, range(len(tasks)), strict=True), reverse=True):
        owners[everyone[rank].chunks] = task
    by_task = list(zip(tasks, everyone, strict=True))
    whole = [version for version in common if _keeps(everyone, version, owners)]
    return Roll(
        max(whole or common, default=None),
        has_state[0] if has_state else 0,
        {task: rank for rank, task in enumerate(tasks)},
        owners,
        {
            chunk: task
            for task, one in sorted(by_task, key=lambda pair: -pair[0])
            for chunk in one.replicas
            if owners[chunk] == NOBODY
        },
        new=sorted(task for task, one in by_task if not one.chunks),
        leaving=sorted(task for task, one in by_task if one.is_leaving),
        next_task=next_task,
    )


def _numbered(everyone: Sequence[Present]) -> tuple[list[int], int]:
    """Returns each rank's task, and the next number."""
    next_task = max(one.next_task for one in everyone)
    tasks = []
    for one in everyone:
        tasks.append(next_task if one.task is None else one.task)
        next_task += one.task is None
    return tasks, next_task


def _keeps(everyone: Sequence[Present], version: int, owners: np.ndarray) -> bool:
    """Tells whether ranks have the state that lost chunks had in a version."""
    kept = {chunk for one in everyone for chunk in one.kept.get(str(version), [])}
    return kept.issuperset(np.flatnonzero(owners == NOBODY).tolist())

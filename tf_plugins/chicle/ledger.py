"""Who owns which chunk: exactly one task at any time (Chicle, section 3)."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import numpy as np

NOBODY = -1


class LedgerError(RuntimeError):
    """A chunk has no owner, or several, or another than the ledger says."""


class Move(NamedTuple):
    """A chunk that changes hands between two iterations."""

    chunk: int
    source: int
    target: int


class Ledger:
    """The owner of each chunk of a data set, by task. All ranks keep the same one."""

    def __init__(self, chunks: int) -> None:
        """Makes one of chunks that nobody owns yet, with ids from 0 on."""
        self._owners = np.full(chunks, NOBODY, np.int64)

    @classmethod
    def of(cls, owners: Sequence[int] | np.ndarray) -> Ledger:
        """Returns the one with these owners, by chunk."""
        ledger = cls(len(owners))
        ledger._owners[:] = owners
        return ledger

    @property
    def owners(self) -> np.ndarray:
        """By chunk, its owner: a copy."""
        return self._owners.copy()

    def assign_randomly(self, tasks: Sequence[int], rng: np.random.Generator) -> None:
        """Gives all chunks to tasks at random, as evenly as their number lets it."""
        rounds = -(-len(self._owners) // len(tasks))
        dealt = np.tile(np.asarray(tasks), rounds)[: len(self._owners)]
        self._owners[rng.permutation(len(self._owners))] = dealt

    def assign(self, chunk: int, task: int) -> None:
        """Gives a task a chunk that nobody has.

        Raises:
            LedgerError: somebody has it, or there is none.
        """
        self.check_owner(chunk, NOBODY)
        self._owners[chunk] = task

    def release(self, chunk: int) -> None:
        """Takes a chunk from its owner, which is gone.

        Raises:
            LedgerError: there is no such chunk.
        """
        self._check_id(chunk)
        self._owners[chunk] = NOBODY

    def move(self, move: Move) -> None:
        """Has a chunk change hands.

        Raises:
            LedgerError: it is not the source's.
        """
        self.check_owner(move.chunk, move.source)
        self._owners[move.chunk] = move.target

    def chunks_of(self, task: int) -> list[int]:
        """Returns the ids of a task's chunks, in order."""
        return [int(chunk) for chunk in np.flatnonzero(self._owners == task)]

    def count(self, tasks: Iterable[int]) -> dict[int, int]:
        """Returns by task how many chunks it has."""
        return {task: int(np.count_nonzero(self._owners == task)) for task in tasks}

    def unowned(self) -> list[int]:
        """Returns the ids of the chunks that nobody has."""
        return self.chunks_of(NOBODY)

    def check(self, held: Mapping[int, Iterable[int]]) -> None:
        """Checks what some tasks really have, all of them or those of one rank.

        Args:
            held: by task, the ids of its chunks.

        Raises:
            LedgerError: a chunk has several owners, or not the one that is written here.
        """
        seen: dict[int, int] = {}
        for task, chunks in held.items():
            for chunk in chunks:
                if chunk in seen:
                    raise LedgerError(f"tasks {seen[chunk]} and {task} both have chunk {chunk}.")
                seen[chunk] = task
                self.check_owner(chunk, task)
        for task in held:
            missing = [chunk for chunk in self.chunks_of(task) if chunk not in seen]
            if missing:
                raise LedgerError(f"task {task} does not have chunk {missing[0]}, which it owns.")

    def digest(self) -> str:
        """Returns what is equal on all ranks where their ledgers are."""
        return hashlib.blake2s(self._owners.tobytes()).hexdigest()

    def check_owner(self, chunk: int, owner: int) -> None:
        """Checks who has a chunk.

        Raises:
            LedgerError: somebody else, or there is no such chunk.
        """
        self._check_id(chunk)
        if self._owners[chunk] != owner:
            has, wanted = (_named(int(task)) for task in (self._owners[chunk], owner))
            raise LedgerError(f"chunk {chunk} belongs to {has}, not to {wanted}.")

    def _check_id(self, chunk: int) -> None:
        if not 0 <= chunk < len(self._owners):
            raise LedgerError(f"there is no chunk {chunk}, only {len(self._owners)} of them.")


def _named(task: int) -> str:
    return "nobody" if task == NOBODY else f"task {task}"

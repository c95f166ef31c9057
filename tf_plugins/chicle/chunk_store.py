"""The chunks of a task, and whose they are at a time (Chicle, section 3)."""

from __future__ import annotations

import weakref
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np

from trepak.ops.loader import call
from trepak.tf_plugins.chicle.chunk import Chunk


class ChunkStore:
    """Chunks of one task: its own during an iteration, the scheduler's between two.

    Attributes:
        number: by which native code knows it.
        checked: whether what is written to between iterations is found, and raises when the next
            one begins, or the chunk leaves.
    """

    def __init__(self, checked: bool = False) -> None:
        """Makes an empty store; `checked` costs a pass over all chunks before and after each."""
        self.number: int = call("chicle_make_store")
        self.checked = checked
        self._chunks: dict[int, Chunk] = {}  # by id
        self._drop = weakref.finalize(self, call, "chicle_drop_store", store=self.number)
        self._drop.atexit = False

    def add(self, chunk: Chunk) -> None:
        """Gives the task a chunk, between iterations.

        Raises:
            tf.errors.FailedPreconditionError: in an iteration.
            tf.errors.AlreadyExistsError: it has a chunk of that id.
        """
        call("chicle_add", store=self.number, chunk=chunk.number)
        self._chunks[chunk.id] = chunk

    def take(self, chunk_id: int) -> Chunk:
        """Takes a chunk away, between iterations.

        Raises:
            tf.errors.FailedPreconditionError: in an iteration, or the chunk was written to since.
            tf.errors.NotFoundError: the task does not have it.
        """
        call("chicle_take", store=self.number, id=chunk_id)
        return self._chunks.pop(chunk_id)

    @contextmanager
    def iteration(self) -> Iterator[None]:
        """Makes the chunks the task's while the block runs.

        Raises:
            tf.errors.FailedPreconditionError: an iteration is under way, or a chunk was written to
                since the last one.
        """
        self._act("begin", checked=self.checked)
        try:
            yield
        finally:
            self._act("end", checked=self.checked)

    def state(self, chunk: Chunk, field: str) -> np.ndarray:
        """Returns the state of a chunk's samples, to be written to, in an iteration.

        Raises:
            tf.errors.FailedPreconditionError: between iterations.
            ValueError: the field is no state.
        """
        self.check_owner(f"field {field} of chunk {chunk.id} can't be written to")
        if not chunk.fields[field].is_state:
            raise ValueError(
                f"field {field!r} of chunk {chunk.id} is no state: it can't be changed."
            )
        return chunk.view(field, writable=True)

    def check_owner(self, what: str) -> None:
        """Checks that the task owns the chunks, as it does in an iteration.

        Args:
            what: begins the message: what can't be done.

        Raises:
            tf.errors.FailedPreconditionError: the scheduler owns them.
        """
        call("chicle_check_owner", store=self.number, what=what)

    def commit(self) -> None:
        """Makes the state of all chunks what `restore` goes back to; between iterations."""
        self._act("commit")

    def restore(self) -> None:
        """Goes back to the state of the last commit; ends an iteration that is under way."""
        self._act("restore")

    def chunks(self) -> list[Chunk]:
        """Returns its chunks, by their ids."""
        return [self._chunks[chunk] for chunk in self.ids]

    @property
    def ids(self) -> list[int]:
        """The ids of its chunks, in order."""
        return sorted(self._chunks)

    @property
    def samples(self) -> int:
        """How many samples its chunks have."""
        return sum(chunk.samples for chunk in self._chunks.values())

    def _act(self, action: str, **options: bool) -> None:
        call("chicle_act", store=self.number, action=action, **options)

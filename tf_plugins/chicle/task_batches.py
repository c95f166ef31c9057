"""A task's batches: in a pass over all samples, each of its own once, in as many steps as others.

A batch is as large as the task's part of what the pass has left. So tasks with more samples take
larger batches, and chunks that move take along what others need not draw any more.
"""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor

import numpy as np

from trepak.tf_plugins.chicle.chunk_store import ChunkStore
from trepak.tf_plugins.chicle.drawing import DRAWN, Draws


class TaskBatches:
    """The batches of one task, which are drawn within iterations only.

    Attributes:
        store: the task's chunks, with the state `DRAWN`.
        steps_left: of the pass under way.
        taken: samples of all batches that were taken.
    """

    def __init__(self, store: ChunkStore, fields: Sequence[str], rng: np.random.Generator) -> None:
        """Begins between two passes.

        Args:
            store: of the task.
            fields: what is drawn of each sample.
            rng: decides the order.
        """
        self.store = store
        self.steps_left = self.taken = 0
        self._may_repeat = False
        self._fields = list(fields)
        self._draws = Draws(store, fields, rng)
        self._thread = ThreadPoolExecutor(1, "trepak draws")
        self._iteration = contextlib.ExitStack()
        self._sizes: Iterator[int] = iter(())  # of the pass' batches from here on
        self._undrawn = 0  # batches of the iteration that nobody has begun to draw
        self._ahead: Future[list[np.ndarray]] | None = None

    @property
    def left(self) -> int:
        """How many of the task's samples the pass has not drawn yet, in the last iteration."""
        return self._draws.undrawn

    @property
    def batches_left(self) -> int:
        """How many batches of the iteration were not taken yet."""
        return self._undrawn + (self._ahead is not None)

    def begin_iteration(self, new_pass_of: int = 0, resumes: bool = False) -> None:
        """Takes over the chunks from the scheduler. `extend` says for how many steps.

        Args:
            new_pass_of: begins a pass of so many steps; 0: goes on with the one under way.
            resumes: these are the steps of what an interrupted pass has left. Where this task has
                fewer such samples than steps, it takes some of the others once more.

        Raises:
            RuntimeError: the pass has fewer samples left here than steps.
        """
        self.end_iteration()
        self._iteration.enter_context(self.store.iteration())
        if new_pass_of:
            self.steps_left, self._may_repeat = new_pass_of, resumes
        self._draws.begin(anew=bool(new_pass_of) and not resumes)
        left, whole = self.left, self.steps_left
        if self._may_repeat:
            left = max(left, whole)
        if left < whole:
            self.end_iteration()
            raise RuntimeError(
                f"a task has {left} samples for the {whole} steps that an epoch has left: more "
                "chunks were moved away from it than it can give."
            )
        ends = (step * left // whole for step in range(whole + 1))
        self._sizes = (end - begin for begin, end in itertools.pairwise(ends))

    def count_undrawn(self) -> int:
        """Returns how many of the task's samples the pass has not drawn yet, between iterations."""
        states = [chunk.view(DRAWN.name) for chunk in self.store.chunks()]
        return sum(int(np.count_nonzero(state == 0)) for state in states)

    def extend(self, steps: int) -> None:
        """Has the iteration go on for so many steps from here, or for what the pass has left."""
        self._undrawn = min(steps, self.steps_left) - (self._ahead is not None)
        self._draw_ahead()

    def take(self) -> list[np.ndarray]:
        """Returns the next batch: by field, an array [samples, …]. The one after is drawn beside.

        Raises:
            RuntimeError: all batches of the iteration were taken.
        """
        if self._ahead is None:
            raise RuntimeError(
                "all batches of this iteration were taken: chunks move before the next one."
            )
        drawn, self._ahead = self._ahead.result(), None
        self.taken += len(drawn[0])
        self.steps_left -= 1
        self._draw_ahead()
        return drawn

    def end_iteration(self) -> None:
        """Gives the chunks back to the scheduler. Batches that nobody has taken are forgotten."""
        self._undrawn = 0
        if self._ahead is not None:
            self._ahead.exception()
            self._ahead = None
        self._iteration.close()

    def stop(self) -> None:
        """Ends the pass, wherever it is."""
        self.end_iteration()
        self.steps_left = 0

    def first(self, count: int) -> list[np.ndarray]:
        """Returns some samples, without drawing them: by field, an array [at most `count`, …]."""
        chunk = self.store.chunks()[0]
        return [np.array(chunk.view(name)[:count]) for name in self._fields]

    def _draw_ahead(self) -> None:
        if self._undrawn and self._ahead is None:
            self._undrawn -= 1
            self._ahead = self._thread.submit(self._draws.draw, next(self._sizes))

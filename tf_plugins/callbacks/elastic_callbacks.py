"""Callbacks that keep an elastic state's `epoch` and `batch`, resume by them, and commit."""

from __future__ import annotations

from typing import Any

import keras

from trepak.horovod_ext import exchange
from trepak.tf_plugins.callbacks.epoch_resume import resume
from trepak.tf_plugins.model.elastic import COUNTED_IN


class CommitStateCallback(keras.callbacks.Callback):
    """Commits a state every few batches and at the end of each epoch.

    It may stand anywhere among the callbacks: it commits when all of them have seen the batch or
    the epoch end, which is as the next one begins, so that the state counts what was trained.
    """

    def __init__(self, state: Any, batches_per_commit: int = 1) -> None:
        """Makes the callback.

        Args:
            state: the state to commit.
            batches_per_commit: batches between two commits.
        """
        super().__init__()
        self.state = state
        self.batches_per_commit = batches_per_commit
        self.batches_remaining = batches_per_commit
        self._due = False

    def commit(self) -> None:
        """Commits; a collective call."""
        self.state.commit()

    def on_train_begin(self, logs: Any = None) -> None:
        """Starts counting anew, so that all ranks count alike after a reset."""
        self.batches_remaining = self.batches_per_commit
        self._due = False

    def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
        """Commits what the last batch made due."""
        self._commit_what_is_due()

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        """Counts the batch."""
        self.batches_remaining -= 1
        if self.batches_remaining == 0:
            self._due = True
            self.batches_remaining = self.batches_per_commit

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        """Commits the epoch before."""
        self._commit_what_is_due()

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        """Makes a commit due."""
        self._due = True

    def on_train_end(self, logs: Any = None) -> None:
        """Commits the last epoch."""
        self._commit_what_is_due()

    def _commit_what_is_due(self) -> None:
        if self._due:
            self._due = False
            self.commit()


class UpdateBatchStateCallback(keras.callbacks.Callback):
    """Keeps `state.batch` at the batches done in this epoch, 0 between epochs.

    The first epoch after a reset leaves out the batches that it had done already, and trains the
    others. These are the first ones that `fit` would take, so its data must come in the same order
    again (`shuffle=False`, or a tf.data pipeline with a seed).
    """

    def __init__(self, state: Any) -> None:
        """Makes the callback; `state` has an attribute `batch`."""
        super().__init__()
        self.state = state
        self._steps: int | None = None
        self._first_epoch = False

    def on_train_begin(self, logs: Any = None) -> None:
        """Agrees with the other ranks on the batches done; a collective call.

        Raises:
            ValueError: the ranks' states differ.
        """
        counted_in = getattr(self.state, COUNTED_IN, None)
        mine = [self.state.batch, self.params.get("steps"), counted_in]
        everyone = exchange.gather(mine, "batches of an elastic state")
        for rank, (batch, _, _) in enumerate(everyone):
            if batch != everyone[0][0]:
                raise ValueError(
                    f"state.batch is {batch} on rank {rank} and {everyone[0][0]} on rank 0: call "
                    "state.sync() on all ranks before fit, as elastic.run does."
                )
        self._steps = self._fewest([steps for _, steps, _ in everyone])
        now = [self._steps, len(everyone)]
        self.state.batch = converted(self.state.batch, everyone[0][2], now)
        setattr(self.state, COUNTED_IN, now)
        self._first_epoch = True

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        """Has an epoch that was begun before a reset leave out what was done then."""
        if self._first_epoch:
            over = self._steps is not None and self.state.batch >= self._steps
            resume(getattr(self.state, "epoch", 0), self.state.batch, over)
        self._first_epoch = False

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        """Counts the batch."""
        done = batch + 1  # a last call of fewer than steps_per_execution batches counts as a whole
        self.state.batch = min(done, self._steps) if self._steps else done

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        """Starts the next epoch's count."""
        self.state.batch = 0

    def _fewest(self, steps: list[int | None]) -> int | None:
        """Returns after how many batches an epoch ends on all ranks, if all know their own."""
        known = [one for one in steps if one]
        if len(known) < len(steps):
            return None
        per_call = self.model.steps_per_execution
        uneven = min(known) < max(known)  # BroadcastGlobalVariablesCallback ends it after a call
        return min(known) // per_call * per_call if uneven else known[0]


def converted(batch: int, before: list[Any] | None, now: list[Any]) -> int:
    """Returns a rank's batches done, where there are other ranks now than when they were counted.

    Ranks that shared an epoch's samples share the same part of it now: `x[rank::size]` of twice as
    many ranks is half as long. What does not divide is trained again and never left out.

    Args:
        batch: batches that each rank had done.
        before: batches per epoch of a rank (None: unknown), and ranks, when they were counted.
        now: the same, of now.
    """
    if before is None or before == now:
        return batch
    (old_steps, old_size), (steps, size) = before, now
    if old_steps and steps == old_steps:
        return batch  # each rank has an epoch of its own, whatever the number of ranks
    done = batch * old_size // size
    if old_steps and steps:
        done = min(done, batch * steps // old_steps)
        return steps if batch >= old_steps else done
    return min(batch, done)


class UpdateEpochStateCallback(keras.callbacks.Callback):
    """Keeps `state.epoch` at the epochs done since the job began, over all resets.

    So `fit` takes `epochs=N - state.epoch`, or `initial_epoch=state.epoch, epochs=N`.
    """

    def __init__(self, state: Any) -> None:
        """Makes the callback; `state` has an attribute `epoch`."""
        super().__init__()
        self.state = state

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        """Counts the epoch as done, whatever number Keras gives it."""
        self.state.epoch += 1

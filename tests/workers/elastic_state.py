"""An elastic state's count of epochs and batches, and epochs that go on where they stopped.

What interrupts a training here is an exception, after which it begins again as under elastic.run:
on all ranks, without new ones. Real jobs that lose and gain ranks are in test_elastic.py.
"""

from __future__ import annotations

import itertools
import math
from typing import Any

import features
import keras
import numpy as np
from harness import case
from horovod.common.exceptions import HostsUpdatedInterrupt
from horovod.runner.elastic.discovery import HostUpdateResult
from resumed_training import BATCH, STEPS, batched, batches_seen, check_resumed, recording

import trepak.keras as hvd
from trepak.tf_plugins.callbacks.elastic_callbacks import converted


@case
def an_epoch_of_arrays_goes_on() -> None:
    check_resumed("arrays", initial=True, compiled=True)


@case
def an_epoch_of_a_dataset_goes_on() -> None:
    check_resumed("dataset", committed=1, commit_every=3, order=[2, 0, 1, 3, 4])


@case
def an_epoch_of_unknown_length_goes_on() -> None:
    check_resumed("unknown length", at=(0, 3), order=[3, 2, 1, 0, 4])


@case
def an_epoch_of_a_py_dataset_goes_on() -> None:
    check_resumed("PyDataset", at=(0, 1), committed=1, error=lambda: HostsUpdatedInterrupt(False))


@case
def an_epoch_of_repeated_data_goes_on() -> None:
    check_resumed("repeated", order=[3, 1, 2, 4, 0])


@case
def an_epoch_of_a_part_of_the_data_goes_on() -> None:
    check_resumed("part", at=(1, 1), committed=1)


@case
def calls_of_several_steps_go_on() -> None:
    """Batches 0 and 1, 2 and 3, and 4 are each trained in a call, which callbacks see."""
    check_resumed("arrays", at=(0, 2), committed=2, steps_per_execution=2)


@case
def a_call_begins_amid_its_steps() -> None:
    """Three batches were done, one by one, where a call now trains two."""
    x, y = features.some_data(STEPS * BATCH, hvd.rank())
    model = recording(steps_per_execution=2)
    state = hvd.elastic.KerasState(model, batch=3, epoch=0)
    callbacks = [
        hvd.elastic.UpdateBatchStateCallback(state),
        hvd.callbacks.BroadcastGlobalVariablesCallback(0),
    ]
    data = batched(x, y).repeat()
    model.fit(data, steps_per_epoch=STEPS + 1, epochs=2, verbose=0, callbacks=callbacks)
    assert batches_seen(model, x) == [3, 4, 0, 1, 2, 3, 4, 0, 1]


@case
def epochs_that_were_done_have_no_batches() -> None:
    """A rank was lost after an epoch's last batch, which ranks with more data did not know."""
    x, y = features.some_data((STEPS + hvd.rank()) * BATCH, hvd.rank())
    model = recording()
    state = hvd.elastic.KerasState(model, batch=STEPS, epoch=0)
    callbacks = [
        hvd.callbacks.BroadcastGlobalVariablesCallback(0),
        hvd.elastic.UpdateBatchStateCallback(state),
        hvd.elastic.UpdateEpochStateCallback(state),
    ]
    epochs = []
    callbacks.append(
        keras.callbacks.LambdaCallback(on_epoch_end=lambda epoch, logs: epochs.append(epoch))
    )
    model.fit(x, y, BATCH, epochs=2, shuffle=False, verbose=0, callbacks=callbacks)
    assert batches_seen(model, x) == list(range(STEPS)), batches_seen(model, x)
    assert epochs == [0, 1] and (state.epoch, state.batch) == (2, 0)
    features.assert_same_on_all_ranks(model)


@case
def batches_are_numbered_as_in_the_whole_epoch() -> None:
    x, y = features.some_data(STEPS * BATCH)
    model = recording()
    state = hvd.elastic.KerasState(model, batch=3, epoch=7)
    numbers: list[Any] = []
    note = keras.callbacks.LambdaCallback(
        on_train_batch_begin=lambda batch, logs: numbers.append(("begin", batch, state.batch)),
        on_train_batch_end=lambda batch, logs: numbers.append(("end", batch, state.batch)),
    )
    callbacks = [hvd.elastic.UpdateBatchStateCallback(state), note]
    model.fit(x, y, BATCH, verbose=0, callbacks=callbacks)
    assert numbers == [("begin", 3, 3), ("end", 3, 4), ("begin", 4, 4), ("end", 4, 5)], numbers


@case
def other_ranks_leave_out_what_was_done() -> None:
    """Rows that are left out were trained on, and few are trained on twice."""
    batches = 0
    for rows, before, now in itertools.product(range(1, 90), (1, 2, 3), (1, 2, 4)):
        old, new = (math.ceil(math.ceil(rows / size) / BATCH) for size in (before, now))
        for batch in range(old + 1):
            left_out = converted(batch, [old, before], [new, now])
            done, skipped = (
                min(rows, size * number * BATCH)
                for size, number in ((before, batch), (now, left_out))
            )
            if old == new:
                assert left_out == batch  # nothing tells that the rows are shared anew
                continue
            assert skipped <= done, (rows, before, now, batch)
            assert done - skipped < 2 * now * BATCH + 1, (rows, before, now, batch)
            batches += 1
    assert batches > 1000


@case
def ranks_that_have_done_other_batches_are_told_so() -> None:
    if hvd.size() == 1:
        return
    x, y = features.some_data(STEPS * BATCH)
    model = recording()
    state = hvd.elastic.KerasState(model, batch=hvd.rank(), epoch=0)
    try:
        model.fit(x, y, verbose=0, callbacks=[hvd.elastic.UpdateBatchStateCallback(state)])
    except ValueError as error:
        assert "state.batch is 1 on rank 1 and 0 on rank 0" in str(error), error
    else:
        raise AssertionError("no error")


@case
def new_hosts_lose_no_batch_between_commits() -> None:
    """Ranks go on from a commit: what was trained since the last one must be in it."""
    model = recording()
    state = hvd.elastic.KerasState(model, batch=0, epoch=0)
    model.layers[0].bias.assign(np.full(8, 5.0))
    state.batch = 2
    state.on_hosts_updated(1, HostUpdateResult.added)
    try:
        state.check_host_updates()
    except HostsUpdatedInterrupt:
        state.sync()
    else:
        raise AssertionError("no interrupt")
    assert state.batch == 2 and (np.asarray(model.layers[0].bias) == 5).all()

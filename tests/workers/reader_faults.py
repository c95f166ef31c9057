"""Jobs that lose a reader, or rank 0; see tests/faults/test_readers.py.

python tests/workers/reader_faults.py reader|data|rank
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

import keras
import psutil
import readers
import tensorflow as tf
from reader_batches import batches_of

import trepak
import trepak.keras as hvd


def endless(rank: int, size: int) -> tf.data.Dataset:
    return batches_of(rank, size).repeat()


def wrong(rank: int, size: int) -> tf.data.Dataset:
    """In rank 1's third batch there is an id that no table has."""

    def spoilt(number: Any, batch: Any) -> Any:
        inputs, labels = batch
        bad = (number == 2) & (rank == 1)
        return {**inputs, "b": inputs["b"] - 99 * tf.cast(bad, tf.int64)}, labels

    return batches_of(rank, size).repeat().enumerate().map(spoilt)


class Killing(keras.callbacks.Callback):
    """After some steps rank 0 kills its reader, or itself."""

    def __init__(self, what: str) -> None:
        super().__init__()
        self.what, self.steps, self.killed = what, 0, 0.0

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        self.steps += 1
        if self.steps != 10 or self.what == "data":
            return
        self.killed = time.time()
        if hvd.rank() == 0:
            (reader,) = psutil.Process().children()
            (OUT / "reader").write_text(str(reader.pid))
            os.kill(os.getpid() if self.what == "rank" else reader.pid, signal.SIGKILL)


OUT = Path(os.environ["OUT"])

if __name__ == "__main__":
    hvd.init()
    what = sys.argv[1]
    if what == "reader":
        model, made, _ = readers.check_that_readers_change_nothing(readers=1)
    else:
        model = readers.compiled(1)
        made = trepak.read_ahead(model, wrong if what == "data" else endless)
    killing = Killing(what)
    try:
        model.fit(made, epochs=100_000, callbacks=[killing], verbose=0)
    except tf.errors.OpError as error:
        result = {"error": str(error), "seconds": time.time() - killing.killed}
        (OUT / f"{hvd.rank()}.json").write_text(json.dumps(result))

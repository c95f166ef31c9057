"""A user's script: nothing in it knows of labs. Writes its place and its steps' times to $OUT."""

from __future__ import annotations

import json
import os
import socket
from pathlib import Path
from typing import Any

import keras
import numpy as np

import trepak.keras as hvd
from trepak.horovod_ext import step_probe
from trepak.horovod_ext.step_probe import take_step_times

STEPS = 40
OUT = Path(os.environ["OUT"])


class Alive(keras.callbacks.Callback):
    """Touches a file in every step, so that its time tells when a killed rank died."""

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        (OUT / f"alive.{hvd.rank()}").touch()


def main() -> None:
    hvd.init()
    step_probe.enable()
    model = keras.Sequential([keras.Input((6,)), keras.layers.Dense(256), keras.layers.Dense(3)])
    optimizer = hvd.DistributedOptimizer(keras.optimizers.SGD(0.01))
    model.compile(optimizer, loss="mse", jit_compile=False)
    x, y = np.ones((8 * STEPS, 6), "float32"), np.ones((8 * STEPS, 3), "float32")
    model.fit(x, y, batch_size=8, verbose=0, shuffle=False, callbacks=[Alive()])
    times = take_step_times()
    place = {
        "host": socket.gethostname(),
        "local_rank": hvd.local_rank(),
        "cross_rank": hvd.cross_rank(),
        "size": hvd.size(),
        "steps": [one.step for one in times],
        "compute": [one.ready - one.begin for one in times],
        "waited": [one.done - one.ready for one in times],
    }
    print(f"rank {hvd.rank()} of {hvd.size()} on {place['host']}", flush=True)
    (OUT / f"{hvd.rank()}.json").write_text(json.dumps(place))
    hvd.shutdown()


if __name__ == "__main__":
    main()

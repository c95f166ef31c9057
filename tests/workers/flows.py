"""What travels on Geryon's flows."""

from __future__ import annotations

import keras
import numpy as np
from harness import case, served

import trepak
import trepak.keras as hvd
from trepak.horovod_ext import parameter_server

STEPS = 12


def model_with_convolutions() -> keras.Model:
    """Convolutions have 37,553 parameters, fully connected layers 66,736."""
    return keras.Sequential(
        [
            keras.Input((8, 8, 16)),
            keras.layers.Conv2D(64, 3, strides=4),
            keras.layers.Conv2D(49, 3, padding="same"),
            keras.layers.Flatten(),
            keras.layers.Dense(332),
            keras.layers.Dense(4),
        ]
    )


@case
def bytes_of_each_priority() -> list[int]:
    """What this rank's engine says that it has sent; the lab's switch says it too."""
    keras.utils.set_random_seed(3)
    model = model_with_convolutions()
    optimizer = hvd.DistributedOptimizer(keras.optimizers.SGD(0.01), transport=trepak.Geryon())
    model.compile(optimizer, loss="mse", jit_compile=False)
    trepak.overlap(model)
    x, y = np.zeros((4 * STEPS, 8, 8, 16), "float32"), np.zeros((4 * STEPS, 4), "float32")
    model.fit(x, y, batch_size=4, verbose=0)
    sent = served().bytes_by_priority
    parameter_server.stop()
    return sent

"""Trains ResNet-32 within a memory budget, on one process: what `trepak train resnet` runs.

    python -m trepak.scripts.examples.train_resnet --pool 500MiB --beyond 4GiB

It has no BatchNormalization, as in the thesis: gradients of that are sums of three tensors, which
TensorFlow adds in the order in which their memory is free, so that the last bits of plain
TensorFlow's weights differ from run to run.
"""

from __future__ import annotations

import argparse
import functools
import hashlib
import json
import sys
import time
from pathlib import Path
from typing import Any

import trepak
from trepak.scripts.entrance import run_command
from trepak.scripts.examples import resnet_options

_SIDE, _CLASSES = 64, 10  # pixels of an image, and digits
_LEARNING_RATE = 0.01


def main(arguments: list[str] | None = None) -> int:
    """Trains and reports; returns the exit code."""
    return run_command(functools.partial(_main, arguments))


def _main(arguments: list[str] | None) -> int:
    options = resnet_options.parse(arguments)
    if options.pool is not None:
        trepak.Dymem(options.pool, options.beyond)  # before all else
    import keras
    import tensorflow as tf

    from trepak.models.builder import Builder
    from trepak.models.resnet import resnet32

    tf.config.experimental.enable_op_determinism()
    keras.utils.set_random_seed(0)
    model = resnet32(Builder(), _CLASSES, _SIDE)
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(keras.optimizers.SGD(_LEARNING_RATE), loss, jit_compile=False)
    try:
        seconds = train(model, options)
    except tf.errors.ResourceExhaustedError as error:
        lines = [line for line in str(error).splitlines() if "OOM" in line]
        return _tell(options.json, {"no_room": lines[0] if lines else str(error)})
    weights = b"".join(weight.tobytes() for weight in model.get_weights())
    return _tell(
        options.json,
        {"seconds": round(seconds, 2), "weights": hashlib.sha256(weights).hexdigest()[:16]},
    )


def train(model: Any, options: argparse.Namespace) -> float:
    """Trains on digits, each pixel of them made a square; returns the seconds of the last step."""
    import keras
    import numpy as np

    from trepak.models import digits

    train = digits.load().train
    chosen = np.resize(np.arange(len(train)), options.batch * options.steps)
    images = train.images[chosen].repeat(_SIDE // 8, 1).repeat(_SIDE // 8, 2).repeat(3, 3)
    began, took = time.perf_counter(), 0.0

    def tell(step: int, logs: dict[str, float]) -> None:
        nonlocal began, took
        took, began = time.perf_counter() - began, time.perf_counter()
        print(f"step {step + 1}/{options.steps}: {took:.1f} s, loss {logs['loss']:.3f}", flush=True)

    callbacks = [keras.callbacks.LambdaCallback(on_train_batch_end=tell)]
    if options.pool is not None:
        callbacks.append(trepak.callbacks.MemoryMonitor())
    model.fit(
        images, train.labels[chosen], options.batch, shuffle=False, verbose=0, callbacks=callbacks
    )
    return took


def _tell(path: Path | None, told: dict[str, Any]) -> int:
    if path is not None:
        path.write_text(json.dumps(told))
    for name, is_so in told.items():
        print(f"{name.replace('_', ' ')}: {is_so}", flush=True)
    return 1 if "no_room" in told else 0


if __name__ == "__main__":
    sys.exit(main())

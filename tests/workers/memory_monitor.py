"""What a user sees of Dymem: monitors, timelines, warnings, errors. Prints a line of JSON per case.

python memory_monitor.py '{"pool": "40MiB", …}' FOLDER CASE…
"""

from __future__ import annotations

import dataclasses
import json
import sys
import warnings
from pathlib import Path
from typing import Any

import keras
import numpy as np
import tensorflow as tf
from dymem_training import BATCH, SIDE, control_flow, data, network, resnet

import trepak
from trepak.ops.timeline import close_timeline, open_timeline
from trepak.scripts import top
from trepak.tf_plugins.model import keras_hooks
from trepak.tf_plugins.model.keras_changes import CHANGES

STEPS, EPOCHS = 8, 2


class Looks(keras.callbacks.Callback):
    """Looks at what `trepak top` shows meanwhile."""

    def __init__(self) -> None:
        super().__init__()
        self.shown = ""

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        jobs = top.local_jobs(top.sinks.status_folder())
        self.shown = " ".join(str(job["memory"].line()) for job in jobs)


def fitted(model: Any, folder: Path, looks: Any = None) -> dict[str, Any]:
    """Trains with a monitor; returns what it has found."""
    monitor = trepak.callbacks.MemoryMonitor(picture=folder / "pictures" / "memory.png")
    x, y = data(BATCH * STEPS)
    others = [] if looks is None else [looks]
    model.fit(x, y, BATCH, epochs=EPOCHS, verbose=0, callbacks=[monitor, *others])
    figures = None if monitor.figures is None else dataclasses.asdict(monitor.figures)
    return {"figures": figures, "curve": monitor.curve, "why": monitor.why_nothing}


def monitored(folder: Path) -> dict[str, Any]:
    """A training with a timeline, of what distributed models change as well."""
    keras_hooks.install()
    # What a class changes must not hide what those above it change, now or later.
    hidden = [
        one.method
        for one in CHANGES
        if issubclass(keras.Model, one.owner)
        and getattr(keras.Model, one.method) is not vars(one.owner)[one.method]
    ]
    looks = Looks()
    about = {"rank": 0, "size": 1, "clock": "c"}
    open_timeline(str(folder / "rank-0.json"), 0, "rank 0", about)
    told = fitted(network(resnet), folder, looks)
    close_timeline()
    after = len(top.local_jobs(top.sinks.status_folder()))
    return told | {"shown": looks.shown, "after": after, "hidden": hidden}


def left_alone(folder: Path) -> dict[str, Any]:
    """A step with a loop, which a custom loop trains."""
    return control_flow()


def plain(folder: Path) -> dict[str, Any]:
    """A training with a monitor alone."""
    return fitted(network(resnet), folder)


def unseen(folder: Path) -> dict[str, Any]:
    """Steps that Dymem can't see: eager ones, and XLA's."""
    x, y = data(BATCH * 2)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for _ in range(4):
            weights = tf.Variable(tf.ones([SIDE, 4]))
            with tf.GradientTape() as tape:
                loss = tf.reduce_sum(tf.matmul(tf.ones([2, SIDE]), weights) ** 2)
            tape.gradient(loss, [weights])
        for jit_compile in ("auto", True):
            keras.utils.set_random_seed(1)
            model = keras.Sequential([keras.Input((SIDE, SIDE, 3)), keras.layers.Flatten()])
            model.add(keras.layers.Dense(5, "softmax"))
            model._resolve_auto_jit_compile = lambda: True  # as on a machine with a GPU
            model.compile("sgd", "sparse_categorical_crossentropy", jit_compile=jit_compile)
            told = fitted(model, folder)
    ours = [str(one.message) for one in caught if "Dymem" in str(one.message)]
    return told | {"warnings": ours}


def tiny(folder: Path) -> dict[str, Any]:
    """A step without a tensor that is worth to be swapped."""
    model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(2), keras.layers.Dense(1)])
    model.compile("sgd", "mse", jit_compile=False)
    monitor = trepak.callbacks.MemoryMonitor()
    model.fit(np.ones((4, 3)), np.ones((4, 1)), verbose=0, callbacks=[monitor])
    return {"why": monitor.why_nothing}


def no_room(folder: Path) -> dict[str, Any]:
    """A batch that finds no room: in `fit`, and in a loop of one's own."""
    model = network(resnet)
    x, y = data(BATCH * 64)

    @tf.function(input_signature=[tf.TensorSpec([None, SIDE, SIDE, 3])])
    def step(images: Any) -> Any:
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(model(images, training=True))
        return tape.gradient(loss, model.trainable_variables)

    said = []
    for train in (lambda: model.fit(x, y, len(x), verbose=0), lambda: step(x)):
        try:
            train()
        except tf.errors.ResourceExhaustedError as error:
            said.append(str(error))
    model.fit(x[:BATCH], y[:BATCH], BATCH, verbose=0)
    return {"said": said, "finite": bool(np.isfinite(model.get_weights()[0]).all())}


CASES = (monitored, left_alone, plain, unseen, tiny, no_room)


def main() -> None:
    """Runs the cases of the command line."""
    folder = Path(sys.argv[2])
    trepak.Dymem(**{"always_swap": True, **json.loads(sys.argv[1])})
    by_name = {case.__name__: case for case in CASES}
    for name in sys.argv[3:]:
        print(json.dumps({"case": name, **by_name[name](folder)}), flush=True)


if __name__ == "__main__":
    main()

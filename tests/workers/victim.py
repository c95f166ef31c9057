"""Trains until a rank is killed; survivors write what they caught to $OUT/<rank>.json.

Arguments: the loop, and what carries the gradients; see `WAYS`.
"""

from __future__ import annotations

import faulthandler
import json
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

import keras
import numpy as np
import tensorflow as tf

import trepak
import trepak.keras as hvd
from trepak.horovod_ext.collective_lanes import Collectives, PieceRules

OUT = Path(os.environ["OUT"])

WAYS = {
    "horovod": lambda: {},
    "geryon overlap": lambda: {"transport": trepak.Geryon()},
    "pipeline": lambda: {},
    "fela": lambda: {},
    "fela ahead": lambda: {},
    "lanes overlap": lambda: {"transport": Collectives(lambda total: PieceRules(40, 80, 0))},
    "quorum": lambda: {"sync": trepak.RNA(choices=3, quorum=3)},
    "rounds": lambda: {"sync": trepak.RNA()},
    "short rounds": lambda: {"sync": trepak.RNA()},
    "groups": lambda: {"sync": trepak.RNA(groups=[[0, 1], [2]], period=1)},
    "pairs": lambda: {"sync": trepak.ADPSGD()},
    "superstep": lambda: {"sync": trepak.ElasticBSP()},
    "barrier": lambda: {"sync": trepak.ElasticBSP(lookahead=1)},
    "waiting": lambda: {"sync": trepak.ElasticBSP(lookahead=1)},
}

# Ranks that are slow where others, one of which may be the victim, are to wait for them.
SLOW = {"quorum": 1, "barrier": 1, "waiting": 2}
# Seconds of each rank's steps, where a superstep is to have several of the fastest.
UNEVEN = {"superstep": (0.02, 0.035, 0.055)}


def data() -> tuple[Any, Any]:
    rng = np.random.default_rng(0)
    return rng.normal(size=(4096, 6)).astype("float32"), rng.normal(size=(4096, 3))


class Announce(keras.callbacks.Callback):
    """Writes this rank's process number once training is under way."""

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        if batch == (30 if sys.argv[-1] in UNEVEN else 5):
            if sys.argv[-1] in UNEVEN and hvd.rank() == 0:
                counted = self.model.optimizer.statistics()
                assert counted["steps"] > counted["barriers"], counted
            (OUT / f"pid.{hvd.rank()}").write_text(str(os.getpid()))
        is_slow = SLOW.get(sys.argv[-1]) == hvd.rank() and batch > 5
        pace = UNEVEN.get(sys.argv[-1], [0.01] * hvd.size())[hvd.rank()]
        time.sleep(2.0 if is_slow else pace)


def fit(model: Any) -> None:
    x, y = data()
    if "short" in sys.argv:  # epochs, whose end is to come soon
        x, y = x[:1024], y[:1024]
    # TensorFlow 2.21's tuner holds up who ends an iterator, the longer the older it is, and with it
    # survivors, which end by themselves here.
    options = tf.data.Options()
    options.autotune.enabled = False
    batches = tf.data.Dataset.from_tensor_slices((x, y)).batch(8).with_options(options)
    callbacks = [hvd.callbacks.BroadcastGlobalVariablesCallback(0), Announce()]
    model.fit(batches, epochs=100, verbose=0, callbacks=callbacks)


def eager_loop(model: Any) -> None:
    x, y = data()
    x, y = tf.constant(x[:8]), tf.constant(y[:8], tf.float32)
    announce = Announce()
    for step in range(10**6):
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(tf.square(model(x) - y))
        model.optimizer.apply(
            tape.gradient(loss, model.trainable_variables), model.trainable_variables
        )
        announce.on_train_batch_end(step)


def compiled_loop(model: Any) -> None:
    x, y = data()
    x, y = tf.constant(x[:8]), tf.constant(y[:8], tf.float32)
    announce = Announce()

    @tf.function
    def step() -> None:
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(tf.square(model(x) - y))
        grads = tape.gradient(loss, model.trainable_variables)
        model.optimizer.apply_gradients(zip(grads, model.trainable_variables, strict=True))

    for number in range(10**6):
        step()
        announce.on_train_batch_end(number)


def order(_: Any) -> None:
    announce = Announce()
    for number, _ in enumerate(trepak.dynamic_sharding(4096, 8)):
        announce.on_train_batch_end(number)


def with_embeddings() -> list[Any]:
    """Returns a model's beginning: its six numbers are ids of a table that lies on all ranks."""
    import keras_rs

    table = keras_rs.layers.TableConfig("numbers", 500, 8, optimizer="adagrad")
    configs = keras_rs.layers.FeatureConfig("numbers", table, (None, 6), (None, 8))
    inputs = keras.Input((6,))
    ids = keras.ops.cast(keras.ops.abs(100 * inputs), "int64") % 500
    return [keras.Model(inputs, trepak.layers.DistributedEmbedding(configs)(ids))]


LOOPS = {"fit": fit, "eager_loop": eager_loop, "compiled_loop": compiled_loop, "order": order}


def main() -> None:
    # The Gloo launcher ends the survivors with SIGTERM at once; they shall have their say first.
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    signal.signal(signal.SIGUSR1, lambda *_: time.sleep(3600))  # hangs, and its process lives
    sets = [hvd.ProcessSet([0, 1]), hvd.ProcessSet([2])] if "groups" in sys.argv else None
    hvd.init(process_sets=sets)
    way = " ".join(sys.argv[2:]) or "horovod"
    # Large where rounds and pushes are to take most of the time.
    hidden = 1024 if way in ("rounds", "groups", "pairs", "superstep") else 8
    middle = [keras.layers.Dense(hidden, activation="tanh") for _ in range(2)]
    first = with_embeddings() if way == "pipeline" else [keras.Input((6,))]
    model = keras.Sequential([*first, *middle, keras.layers.Dense(3)])
    optimizer = hvd.DistributedOptimizer(keras.optimizers.Adam(0.01), **WAYS[way]())
    model.compile(optimizer, loss="mse", jit_compile=False)
    if way.endswith("overlap"):
        trepak.overlap(model)
    elif way == "pipeline":
        trepak.pipeline(model)
    elif way.startswith("fela"):
        ahead = int(way == "fela ahead")
        trepak.Fela(model, [one.name for one in middle], threshold=2, staleness=ahead)
    try:
        LOOPS[sys.argv[1]](model)
    except hvd.elastic.HorovodInternalError as error:
        caught = {"ok": True, "error": str(error), "time": time.time()}
        # Before the traceback goes, and with it tf.data's iterator: that can take seconds, and the
        # launcher ends who is left 5 s after the first one.
        (OUT / f"{hvd.rank()}.json").write_text(json.dumps({"caught": caught}))
        faulthandler.dump_traceback_later(4)  # says where it is, if it does not end
    sys.exit(3)


if __name__ == "__main__":
    main()

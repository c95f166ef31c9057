"""Ranks train together, each in a Dymem pool of its own, or in none.

    dymem_ranks.py '{"pool": "32MiB", …}' SYNC     null: plain TensorFlow; SYNC: bsp, geryon, rna

Each rank writes a file of JSON.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import keras
from dymem_training import BATCH, data, digest, network, resnet

import trepak
import trepak.keras as hvd

STEPS = 12


def main() -> None:
    """Trains on this rank's part of the data."""
    options = json.loads(sys.argv[1])
    dymem = None if options is None else trepak.Dymem(**options)
    hvd.init()
    model = network(resnet)
    optimizer = {
        "bsp": lambda inner: hvd.DistributedOptimizer(inner),
        "geryon": lambda inner: hvd.DistributedOptimizer(inner, transport=trepak.Geryon()),
        "rna": lambda inner: hvd.DistributedOptimizer(inner, sync=trepak.RNA()),
    }[sys.argv[2]](keras.optimizers.SGD(0.05, momentum=0.9))
    model.compile(optimizer, "sparse_categorical_crossentropy", jit_compile=False)
    x, y = data(BATCH * STEPS * hvd.size())
    mine = slice(hvd.rank(), None, hvd.size())
    start = [hvd.callbacks.BroadcastGlobalVariablesCallback(0)]
    history = model.fit(
        x[mine], y[mine], BATCH, epochs=2, shuffle=False, verbose=0, callbacks=start
    )
    told = {"weights": digest(model), "losses": history.history["loss"]}
    if dymem is not None:
        told["statistics"] = dymem.statistics()
    Path(os.environ["OUT"], f"{hvd.rank()}.json").write_text(json.dumps(told))
    hvd.shutdown()


if __name__ == "__main__":
    main()

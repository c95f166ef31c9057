"""Saves tables, and is killed while it saves them again; or loads what was saved before."""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

import numpy as np
import sitecustomize
from embedding_saving import check_equal, slots_of, step, tables_of
from embeddings import built

import trepak.keras as hvd
from trepak.horovod_ext import exchange
from trepak.layers import load_tables, save_tables
from trepak.tf_plugins.layers import table_files

OUT = Path(os.environ["OUT"])


def save(folder: Path) -> None:
    layer = built("row")
    for number in range(3):
        step(layer, number)
    save_tables(layer, folder)
    if hvd.rank() == 0:
        np.savez(folder.with_suffix(".npz"), *slots_of(layer))
    exchange.gather(None, "that it is there")
    step(layer, 3)
    if hvd.rank() == 1:
        plain = table_files.write

        def killed(*args: Any) -> Any:
            plain(*args)
            (OUT / "killed").touch()
            os.kill(os.getpid(), signal.SIGKILL)

        table_files.write = killed
    save_tables(layer, folder)


def load(folder: Path) -> None:
    layer = built("column")
    before = tables_of(layer)
    exchange.gather(None, "that all have read")
    load_tables(layer, folder)
    expected = np.load(folder.with_suffix(".npz"))
    found = dict(enumerate(slots_of(layer)))
    check_equal({f"arr_{number}": values for number, values in found.items()}, expected)
    assert any((found[0][:, 0] != values).any() for values in [before["adam"]])
    exchange.gather(None, "that all have compared")
    step(layer, 3)
    (OUT / f"{hvd.rank()}.json").write_text(json.dumps({"tables": len(found)}))


if __name__ == "__main__":
    sitecustomize.release()
    hvd.init()
    {"save": save, "load": load}[sys.argv[2]](Path(sys.argv[1]))
    hvd.shutdown()

"""A rank fails while others sum gradients: training goes on when Horovod was started anew."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Any

from fela import BATCH, SIMPLE, batches, loss, optimizer, simple

import trepak
import trepak.keras as hvd
from trepak.horovod_ext.fela import FelaWorker, Trained


def tried(model: Any, x: Any, y: Any) -> str:
    """Returns the error of a `fit`, and nothing if there is none."""
    try:
        model.fit(x, y, BATCH, verbose=0)
    except (OSError, RuntimeError, hvd.elastic.HorovodInternalError) as error:
        return f"{type(error).__name__}: {error}"
    return ""


def main() -> None:
    trepak.init()
    rank = trepak.rank()
    model = simple()
    trepak.Fela(model, SIMPLE, threshold=2)
    model.compile(optimizer("momentum"), loss())
    x, y = (one[0] for one in batches(rank))
    told = [tried(model, x, y)]
    plain = FelaWorker.next

    def failing(self: FelaWorker) -> Any:
        event = plain(self)
        if isinstance(event, Trained):
            time.sleep(2)  # the other one has begun its sum
            raise OSError("this rank has no disk")
        return event

    if rank == 1:
        FelaWorker.next = failing  # type: ignore[method-assign]
    told.append(tried(model, x, y))
    FelaWorker.next = plain  # type: ignore[method-assign]
    told.append(tried(model, x, y))
    hvd.shutdown()
    hvd.init()
    callback = hvd.callbacks.BroadcastGlobalVariablesCallback(0)  # all begin alike
    model.fit(x, y, BATCH, verbose=0, callbacks=[callback])
    told.append(float(sum(abs(one).sum() for one in model.get_weights())))
    (Path(os.environ["OUT"]) / f"{rank}.json").write_text(json.dumps({"told": told}))


if __name__ == "__main__":
    main()

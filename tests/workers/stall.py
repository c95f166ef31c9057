"""One rank never enters a collective: it must fail on all when TREPAK_STALL_SECONDS are over."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path

import tensorflow as tf

import trepak


def main() -> None:
    trepak.init()
    rank = trepak.rank()
    began = time.monotonic()
    if rank == 1:
        time.sleep(12)  # busy elsewhere, far longer than the limit
    result = {"ok": False, "error": "the allreduce did not fail"}
    try:
        trepak.allreduce(tf.ones([2]), name="stalled")
    except trepak.elastic.HorovodInternalError as error:
        result = {"ok": True, "value": time.monotonic() - began, "message": str(error)}
    (Path(os.environ["OUT"]) / f"{rank}.json").write_text(json.dumps({"stall": result}))


if __name__ == "__main__":
    main()

"""Runs named cases on every rank of a job and writes what became of them to $OUT/<rank>.json."""

from __future__ import annotations

import json
import os
import sys
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

CASES: dict[str, Callable[[], Any]] = {}


def case(function: Callable[[], Any]) -> Callable[[], Any]:
    """Registers a function as a case: it passes if it returns; what it returns is kept."""
    CASES[function.__name__] = function
    return function


def main(process_sets: Any = None) -> None:
    """Runs all cases, or those that contain one of the arguments."""
    import trepak.keras as hvd

    hvd.init(process_sets=process_sets)
    results: dict[str, Any] = {}
    out = Path(os.environ["OUT"]) / f"{hvd.rank()}.json"
    wanted = sys.argv[1:]
    for name, function in CASES.items():
        if wanted and not any(w in name for w in wanted):
            continue
        began = time.monotonic()
        result: dict[str, Any] = {"ok": True}
        try:
            result["value"] = function()
        except Exception:
            result = {"ok": False, "error": traceback.format_exc()}
        result["seconds"] = round(time.monotonic() - began, 3)
        results[name] = result
        out.write_text(json.dumps(results))  # after each case, so that a crash keeps the others
        hvd.barrier()
    hvd.shutdown()

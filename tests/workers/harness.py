"""Named cases that run on every rank of a job; what became of them goes to $OUT/<rank>.json.

    python tests/workers/run.py WORKER[:CASE] …

A worker is a module beside this one. All workers of a job share its processes, because importing
TensorFlow takes longer than most cases.
"""

from __future__ import annotations

import contextlib
import gc
import json
import os
import sys
import threading
import time
import traceback
import types
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import sitecustomize


@dataclass(frozen=True)
class Case:
    """A case passes if `run` returns; what it returns is kept.

    Attributes:
        run: called on every rank; with what `alone` returned, if there is one.
        alone: work for one process, which one rank does for all: the ranks share such work.
    """

    run: Callable[..., Any]
    alone: Callable[[], Any] | None = None


CASES: dict[str, dict[str, Case]] = {}


def case(function: Callable[[], Any]) -> Callable[[], Any]:
    """Registers a function as a case of its module."""
    add(function.__module__, function.__name__, Case(function))
    return function


def add(worker: str, name: str, one: Case) -> None:
    """Registers a case of a worker."""
    CASES.setdefault(worker, {})[name] = one


def chosen(arguments: Sequence[str]) -> dict[str, Case]:
    """Returns the cases, as worker.case: all of a worker, or those with a part in their names."""
    found = {}
    for argument in arguments:
        worker, _, part = argument.partition(":")
        for name, one in CASES[worker].items():
            if part in name:
                found[f"{worker}.{name}"] = one
    return found


def counted(optimizer: Any, prefix: str = "") -> types.SimpleNamespace:
    """Returns an optimizer's statistics, those whose names begin so, without the prefix."""
    counted = optimizer.statistics()
    found = {n.removeprefix(prefix): v for n, v in counted.items() if n.startswith(prefix)}
    return types.SimpleNamespace(**found)


def served() -> types.SimpleNamespace:
    """Returns the statistics of the job's parameter servers."""
    from trepak.horovod_ext import parameter_server

    return types.SimpleNamespace(**parameter_server.statistics())


def main(arguments: Sequence[str], process_sets: Any = None) -> None:
    """Runs the chosen cases."""
    import trepak.keras as hvd

    sitecustomize.release()
    gc.freeze()
    hvd.init(process_sets=process_sets)
    cases = chosen(arguments)
    done_alone = _share(cases)
    results: dict[str, Any] = {}
    out = Path(os.environ["OUT"]) / f"{hvd.rank()}.json"
    for name, one in cases.items():
        began = time.monotonic()
        result: dict[str, Any] = {"ok": True}
        with _stacks_if_long(out.with_suffix(".stacks")) as stacks:
            try:
                result["value"] = one.run(*done_alone.get(name, ()))
            except (Exception, pytest.fail.Exception):
                result = {"ok": False, "error": traceback.format_exc() + stacks.read_text()}
            # TensorFlow 2.21 holds up who ends an iterator, the longer the older it is: end them.
            gc.collect()
            gc.freeze()  # what is left is not looked at again
            result["seconds"] = round(time.monotonic() - began, 3)
            results[name] = result
            # After each case, so that a crash keeps the others, and at once, so that it is whole.
            new = out.with_suffix(".new")
            new.write_text(json.dumps(results))
            new.replace(out)
            hvd.barrier()
    hvd.shutdown()


@contextlib.contextmanager
def _stacks_if_long(path: Path) -> Iterator[Path]:
    """Has the stacks of a rank that is held up written, before a collective fails for it."""
    from trepak.horovod_ext import config

    def dump() -> None:
        stacks = sys._current_frames().values()
        path.write_text("\n".join("".join(traceback.format_stack(one)) for one in stacks))

    path.write_text("")
    timer = threading.Timer(int(config.value("TREPAK_STALL_SECONDS")) / 2, dump)
    timer.daemon = True
    timer.start()
    try:
        yield path
    finally:
        timer.cancel()


def _share(cases: dict[str, Case]) -> dict[str, tuple[Any]]:
    """Does the work for one process, each rank a part of it; returns it all on every rank."""
    import trepak

    alone = [(name, one.alone) for name, one in cases.items() if one.alone]
    mine = {name: (work(),) for name, work in alone[trepak.rank() :: trepak.size()]}
    return {name: work for part in trepak.allgather_object(mine) for name, work in part.items()}

"""The real trainings of `trepak bench dymem`: what fits into a pool, and what it costs."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import Any

from trepak.scripts.bench.dymem_case import Case
from trepak.scripts.bench.ranks import command_of, run_alone
from trepak.scripts.launcher import JobError

MIB = 1 << 20
GROWTH = "largest batch in a pool, real training"
FILE = "memory of the process with the file tier, real training"
FITS = "a step that fits, two live processes by turns"
CLOCK = "replay against a real training on a slow link"

_WORKER = "dymem_training_worker"
_TIMEOUT = 240.0
_ROUNDS, _STEPS = 6, 4
_LINK = 0.25e9
_RESNET, _INCEPTION = (
    Case("resnet50", 64, "plain", (32,)),
    Case("inception_v4", 107, "plain", (16,), steps=2),
)
_POOLS = {_RESNET: 500, _INCEPTION: 900}  # MiB
# The batches that each way to train tries, one after the other.
_BATCHES: Mapping[Case, Mapping[str, tuple[int, ...]]] = {
    _RESNET: {"plain": (40, 48, 56), "RematScope": (80, 96, 112), "dymem": (96, 112, 128, 144)},
    _INCEPTION: {"plain": (32, 36, 40), "RematScope": (64, 80, 96), "dymem": (72, 80, 96)},
}


def train_all(tell: Callable[[str], Any]) -> list[dict[str, Any]]:
    """Trains; returns rows of several kinds."""
    tell("training in small pools, without Dymem, with keras.RematScope, and with Dymem")
    rows = [row for case in _POOLS for row in growth(case)]
    tell("training with swapped tensors in a file")
    rows.append(in_file())
    tell("training where all fits, by turns")
    rows += [when_it_fits(case) for case in _POOLS]
    tell("training on a slow link, and replaying it")
    return rows + clock()


def _quiet(**more: str) -> dict[str, str]:
    return {"TF_CPP_MIN_LOG_LEVEL": "1", **more}


def _climbed(case: Case, env: dict[str, str]) -> list[dict[str, Any]]:
    """Returns the rows of the batches that trained, also if the process ended at the next one.

    Raises:
        JobError: it ended for another reason than memory.
    """
    with tempfile.TemporaryDirectory() as folder:
        output = Path(folder) / "rows.json"
        with contextlib.suppress(_OutOfMemory), _only_out_of_memory():
            run_alone(_WORKER, case, _TIMEOUT, env, output)
        return list(json.loads(output.read_text())) if output.exists() else []


class _OutOfMemory(Exception):
    """A process ended as a tensor found no room."""


@contextlib.contextmanager
def _only_out_of_memory() -> Iterator[None]:
    try:
        yield
    except JobError as error:
        if "ran out of memory" not in str(error):
            raise
        raise _OutOfMemory from error


def growth(case: Case) -> list[dict[str, Any]]:
    """Returns a row for each way to train in a pool: the largest batch, and how fast it is."""
    pool, batches = _POOLS[case], _BATCHES[case]
    capped = _quiet(TF_CPU_ALLOCATOR_USE_BFC="true", TF_CPU_BFC_MEM_LIMIT_IN_MB=str(pool))
    options = {"pool": pool * MIB, "beyond": "12GiB"}
    ways = {
        "plain": _climbed(replace(case, batches=batches["plain"]), capped),
        "RematScope": _climbed(replace(case, way="remat", batches=batches["RematScope"]), capped),
        "dymem": _climbed(replace(case, dymem=options, batches=batches["dymem"]), _quiet()),
    }
    rows = []
    for way, climbed in ways.items():
        largest = climbed[-1] if climbed else {"batch": 0, "seconds": 1.0}
        above = [batch for batch in batches[way] if batch > largest["batch"]]
        rows.append(
            {
                "kind": GROWTH,
                "network": case.network,
                "pool_mib": pool,
                "way": way,
                "batch": largest["batch"],
                "no_room": above[0] if above else None,
                "images_per_second": largest["batch"] / largest["seconds"],
            }
        )
    return rows


def in_file() -> dict[str, Any]:
    """Returns by how much a process's own memory in RAM falls when tensors lie in a file."""
    case = replace(_RESNET, batches=(128,))
    with tempfile.TemporaryDirectory(dir=Path.cwd()) as folder:
        inside = replace(case, dymem={"pool": "4GiB", "beyond": folder, "policy": "none"})
        outside = replace(case, dymem={"pool": 500 * MIB, "beyond": folder})
        (before,), (after,) = (_climbed(one, _quiet()) for one in (inside, outside))
    peaks = [row["pool"]["peak_live_bytes"] for row in (before, after)]
    fell = before["anonymous_bytes"] - after["anonymous_bytes"]
    return {
        "kind": FILE,
        "network": "resnet50",
        "batch": 128,
        "in_file_mib": after["beyond"]["peak_bytes"] / MIB,
        "pool_fell_mib": (peaks[0] - peaks[1]) / MIB,
        "anonymous_mib_before": before["anonymous_bytes"] / MIB,
        "anonymous_mib_after": after["anonymous_bytes"] / MIB,
        "fell_of_pool": fell / (peaks[0] - peaks[1]),
        "slower": after["seconds"] / before["seconds"],
    }


@contextlib.contextmanager
def _live(case: Case) -> Iterator[Callable[[int], list[float]]]:
    """Gives what has a process take so many steps, and returns their seconds."""
    with command_of(_WORKER, replace(case, turns=True)) as (command, _):
        process = subprocess.Popen(
            command,
            env={**os.environ, **_quiet()},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        assert process.stdin is not None and process.stdout is not None

        def answer() -> str:
            line = process.stdout.readline()  # type: ignore[union-attr]
            if not line:
                raise JobError(f"{_WORKER} ended with {process.wait()}.")
            return line

        def steps(count: int) -> list[float]:
            process.stdin.write(f"{count}\n")  # type: ignore[union-attr]
            process.stdin.flush()  # type: ignore[union-attr]
            return list(json.loads(answer()))

        try:
            answer()  # it is ready
            yield steps
        finally:
            process.kill()
            process.wait()


def when_it_fits(case: Case) -> dict[str, Any]:
    """Returns how much slower a step is in a pool in which all fits."""
    seconds: dict[str, list[float]] = {"plain": [], "dymem": []}
    pooled = replace(case, dymem={"pool": "6GiB", "beyond": "1GiB"})
    with _live(case) as plain, _live(pooled) as dymem:
        for _ in range(_ROUNDS):
            seconds["plain"] += plain(_STEPS)
            seconds["dymem"] += dymem(_STEPS)
    middle = {way: median(of) for way, of in seconds.items()}
    return {
        "kind": FITS,
        "network": case.network,
        "batch": case.batches[0],
        "steps": len(seconds["plain"]),
        "plain_ms": 1000 * middle["plain"],
        "dymem_ms": 1000 * middle["dymem"],
        "ratio": middle["dymem"] / middle["plain"],
    }


def clock() -> list[dict[str, Any]]:
    """Returns a row for each policy: what a replay says of a step, and what a real one takes."""
    case = Case("resnet50", 64, "predict", (32, 4, 8), link=_LINK)
    replayed = run_alone(_WORKER, case, _TIMEOUT, _quiet())
    rows = []
    for policy in ("vdnn", "dymem"):
        options = {"pool": "4GiB", "beyond": "4GiB", "policy": policy, "always_swap": True}
        real = replace(case, way="plain", batches=(32,), dymem={**options, "_link": _LINK})
        (measured,) = _climbed(real, _quiet())
        rows.append(
            {
                "kind": CLOCK,
                "policy": policy,
                "link_gb_per_second": _LINK / 1e9,
                "without_swaps_seconds": replayed["seconds"],
                "replayed_seconds": replayed[policy],
                "measured_seconds": measured["seconds"],
                "ratio": replayed[policy] / measured["seconds"],
            }
        )
    return rows

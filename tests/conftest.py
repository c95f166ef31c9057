"""Starts real multi-process jobs for the tests."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from trepak.scripts.launcher import PINNED
from trepak.scripts.launcher import horovodrun as find_horovodrun

WORKERS = Path(__file__).parent / "workers"

# 2 cores carry up to 3 ranks: one thread each, and ranks that wait give their core away.
JOB_ENVIRONMENT = {
    **PINNED,
    "TF_NUM_INTEROP_THREADS": "2",
    "OMPI_MCA_rmaps_base_oversubscribe": "1",
    "TREPAK_STALL_SECONDS": "60",
    "PYTHONPATH": str(WORKERS),
}


@dataclass
class Job:
    """What a finished job left: exit code, output, and per rank the outcome of each case."""

    code: int
    output: str
    ranks: list[dict[str, Any]]

    def passed(self, worker: str) -> list[int]:
        """Returns how many cases of a worker each rank passed; fails if one did not pass."""
        mine = [
            {name: result for name, result in results.items() if name.startswith(f"{worker}.")}
            for results in self.ranks
        ]
        failed = [
            f"rank {rank}, {name}:\n{result['error']}"
            for rank, results in enumerate(mine)
            for name, result in results.items()
            if not result["ok"]
        ]
        assert not failed, "\n".join(failed)
        assert all(mine), self.output[-6000:]
        return [len(results) for results in mine]


def horovodrun(np: int, gloo: bool) -> list[str]:
    return [
        find_horovodrun(),
        *(["--gloo"] if gloo else []),
        "-np",
        str(np),
        "-H",
        f"localhost:{np}",
    ]


def start(
    command: list[str], out: Path, env: dict[str, str] | None = None, **kwargs: Any
) -> subprocess.Popen[str]:
    """Starts a command with the job's environment; `out` is where its ranks write."""
    out.mkdir(parents=True, exist_ok=True)
    environment = {**os.environ, **JOB_ENVIRONMENT, "OUT": str(out), **(env or {})}
    return subprocess.Popen(
        command,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        stdin=subprocess.DEVNULL,
        text=True,
        start_new_session=True,
        **kwargs,
    )


def wait_for(paths: list[Path], seconds: float = 90) -> None:
    """Waits until all files are there, with something in them."""
    deadline = time.monotonic() + seconds
    while not all(path.exists() and path.read_text() for path in paths):
        assert time.monotonic() < deadline, f"{paths} did not appear"
        time.sleep(0.05)


def finish(process: subprocess.Popen[str], seconds: float) -> tuple[int, str]:
    """Waits for a started job; ends it with all its processes when the time is over."""
    try:
        output, _ = process.communicate(timeout=seconds)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, 9)
        output, _ = process.communicate()
        return 124, output + f"\nended after {seconds} s"
    return process.returncode, output


def run_job(
    program: Sequence[str],
    out: Path,
    np: int = 2,
    gloo: bool = False,
    env: dict[str, str] | None = None,
    seconds: float = 280,
) -> Job:
    """Runs a program of tests/workers, its file first, on `np` ranks under horovodrun."""
    command = [*horovodrun(np, gloo), sys.executable, str(WORKERS / program[0]), *program[1:]]
    code, output = finish(start(command, out, env), seconds)
    files = [out / f"{rank}.json" for rank in range(np)]
    ranks = [json.loads(f.read_text()) if f.exists() else {} for f in files]
    return Job(code, output, ranks)

"""How benches start the processes that measure, here or on the hosts of a lab; see `rank`."""

from __future__ import annotations

import contextlib
import json
import os
import pickle
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from trepak.scripts.lab import job, state
from trepak.scripts.lab.host_conditions import HostConditions
from trepak.scripts.lab.topology import Lab
from trepak.scripts.launcher import JobError, Line, Outcome, launch

IN_A_LAB = "trepak lab run --gloo"  # how reports call the launcher
_NAME = "trepak-bench"
PACKET = 8000  # bytes; smaller ones cost more CPU than 2 cores have


@contextlib.contextmanager
def lab_of(hosts: int, rate: int, packet: int = PACKET) -> Iterator[Lab]:
    """Makes the benches' lab, with two priorities, and removes it when the block ends.

    Args:
        hosts: how many.
        rate: of each link, in bits per second.
        packet: bytes of the largest packet; see `Lab`.

    Raises:
        LabError: no lab can be made here.
    """
    state.down(_NAME)  # one that an earlier run left
    lab, _ = state.up(_NAME, hosts, rate, 2, packet)
    try:
        yield lab
    finally:
        state.down(_NAME)


@contextlib.contextmanager
def command_of(
    module: str, spec: Any, output: Path | None = None
) -> Iterator[tuple[list[str], Path]]:
    """Gives the block the command of a bench's processes, and the file that they will write.

    Args:
        module: of this package; it calls `rank.main`, or reads `rank.options` itself.
        spec: what it is to measure: anything that can be pickled.
        output: that file; None: one that goes when the block ends.
    """
    with tempfile.TemporaryDirectory() as folder:
        file, output = Path(folder) / "spec.pickle", output or Path(folder) / "outcomes.json"
        file.write_bytes(pickle.dumps(spec))
        program = [sys.executable, "-m", f"{__package__}.{module}", "--spec", str(file)]
        yield [*program, "--output", str(output)], output


def run_here(
    np: int,
    module: str,
    spec: Any,
    timeout: float,
    on_line: Callable[[Line], Any] = lambda line: False,
    env: Mapping[str, str] | None = None,
) -> Any:
    """Runs a bench's ranks on this machine, with MPI; returns what they wrote.

    Args:
        np: how many.
        module: see `command_of`.
        spec: see `command_of`.
        timeout: seconds after which they are stopped.
        on_line: see `launch`; by default nothing that they print is shown.
        env: see `launch`.

    Raises:
        JobError: they failed, or took too long.
    """
    with command_of(module, spec) as (command, output):
        outcome = launch(np, command, env=env, on_line=on_line, timeout=timeout)
        return written(output, outcome)


def run_alone(
    module: str,
    spec: Any,
    timeout: float,
    env: Mapping[str, str] | None = None,
    output: Path | None = None,
) -> Any:
    """Runs one process of a bench, without a launcher; returns what it wrote.

    Args:
        module: see `command_of`.
        spec: see `command_of`.
        timeout: seconds after which it is stopped.
        env: variables beside this process's own.
        output: see `command_of`.

    Raises:
        JobError: it failed, or took too long.
    """
    with command_of(module, spec, output) as (command, output):
        try:
            ended = subprocess.run(
                command,
                env={**os.environ, **(env or {})},
                capture_output=True,
                text=True,
                timeout=timeout,
            )
        except subprocess.TimeoutExpired:
            raise JobError(f"{module} was still running after {timeout:.0f} s.") from None
        if ended.returncode:
            raise JobError(f"{module} ended with {ended.returncode}:\n{ended.stderr[-3000:]}")
        return json.loads(output.read_text()) if output.exists() else None


def run_in(
    lab: Lab,
    module: str,
    spec: Any,
    timeout: float,
    variables: Mapping[str, str] | None = None,
    links: Mapping[str, int] | None = None,
    output: Path | None = None,
    gloo: bool = True,
    slow: Mapping[str, float] | None = None,
) -> tuple[Any, float]:
    """Runs a bench's ranks, one on each host of a lab.

    Args:
        lab: that is up.
        module: see `command_of`.
        spec: see `command_of`.
        timeout: seconds after which they are stopped.
        variables: environment variables of all ranks.
        links: see `Job`.
        output: see `command_of`.
        gloo: with Gloo, whose ranks wait without using the CPU; else with MPI.
        slow: see `HostConditions`.

    Returns:
        What they wrote, and the share of the CPU that was idle in the median second.

    Raises:
        JobError: they failed, or took too long.
    """
    with command_of(module, spec, output) as (command, output):
        uneven = HostConditions(slow=dict(slow or {})).variables(lab)
        of_hosts = {host: {**(variables or {}), **of_host} for host, of_host in uneven.items()}
        planned = job.Job(command, lab.hosts, gloo, of_hosts, links or {})
        result = job.run(lab, planned, lambda line: False, timeout)
        return written(output, result.outcome), result.idle_share


def written(output: Path, outcome: Outcome) -> Any:
    """Returns what processes that have ended wrote.

    Raises:
        JobError: they failed.
    """
    if outcome.exit_code:
        raise JobError(f"its processes ended with {outcome.exit_code}:\n{outcome.text()}")
    return json.loads(output.read_text())

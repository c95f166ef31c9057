"""What users have without trepak, on the same network and links: throughput alone.

TensorFlow's ParameterServerStrategy over plain gRPC, with whole variables (its default) and with
partitioned ones, and over `grpc+geryon`; Horovod's ring is an arm of `geryon_arms`.
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from trepak.scripts.bench.geryon_arms import MOST_STOLEN, Cell
from trepak.scripts.lab import state
from trepak.scripts.lab.job import start_in_host
from trepak.scripts.lab.topology import HEAD, Lab
from trepak.scripts.launcher import JobError

PLAIN, PARTITIONED = "TensorFlow, gRPC", "TensorFlow, gRPC, partitioned"
OVER_FLOWS = "TensorFlow, grpc+geryon, partitioned"
_PORTS = (4001, 4002)  # of a worker, and of a server
_CHIEF_PORT = 4003
_TIMEOUT = 1800.0
_STEPS = 8  # of each worker in each round; the first and the last are not counted


def ways(cell: Cell) -> Mapping[str, tuple[str, int]]:
    """Returns each way's protocol, and pieces per variable."""
    return {
        PLAIN: ("grpc", 1),
        PARTITIONED: ("grpc", cell.workers),
        OVER_FLOWS: ("grpc+geryon", cell.workers),
    }


def measure(lab: Lab, cell: Cell) -> list[dict[str, Any]]:
    """Returns a row for each way.

    Raises:
        JobError: a process failed, or took too long.
    """
    rows = []
    for way, (protocol, pieces) in ways(cell).items():
        rounds = _run(lab, cell, protocol, pieces)
        quiet = [one for one in rounds if one["stolen"] <= MOST_STOLEN]
        step = statistics.median(one["step_s"] for one in quiet or rounds)
        rows.append(
            {
                "kind": f"alternatives: {cell.network.model}, {cell.workers} workers",
                "way": way,
                "step_s": step,
                "quiet_rounds": len(quiet),
                "images_per_s": cell.workers * cell.network.batch * cell.stretch / step,
                "cpu_idle": statistics.median(one["idle"] for one in rounds),
                "cpu_stolen": statistics.median(one["stolen"] for one in rounds),
            }
        )
    return rows


def _run(lab: Lab, cell: Cell, protocol: str, pieces: int) -> list[dict[str, Any]]:
    """Runs one cluster; returns what its coordinator measured, by round."""
    with tempfile.TemporaryDirectory() as folder:
        spec, output = Path(folder) / "spec.json", Path(folder) / "outcome.json"
        spec.write_text(
            json.dumps(
                {
                    "model": cell.network.model,
                    "batch": cell.network.batch,
                    "shrink": cell.shrink,
                    "stretch": cell.stretch,
                    "rounds": cell.rounds,
                    "steps": _STEPS,
                    "protocol": protocol,
                    "pieces": pieces,
                    "hosts": [lab.address(host) for host in lab.host_names],
                    "ports": _PORTS,
                    "chief": f"{lab.address(HEAD)}:{_CHIEF_PORT}",
                }
            )
        )
        module = [
            sys.executable,
            "-m",
            "trepak.scripts.bench.tf_parameter_server",
            "--spec",
            str(spec),
        ]
        servers = []
        try:
            for task, host in enumerate(lab.host_names):
                command = [*module, "--task", str(task)]
                servers.append(start_in_host(lab, host, command, subprocess.DEVNULL))
            chief = start_in_host(lab, HEAD, [*module, "--output", str(output)])
            _wait(chief)
            rounds: list[dict[str, Any]] = json.loads(output.read_text())["rounds"]
            return rounds
        finally:
            state.stop_processes(lab)
            for server in servers:
                server.wait()


def _wait(chief: subprocess.Popen[str]) -> None:
    try:
        _, errors = chief.communicate(timeout=_TIMEOUT)
    except subprocess.TimeoutExpired:
        chief.kill()
        _, errors = chief.communicate()
    if chief.returncode != 0:
        raise JobError(f"TensorFlow's coordinator ended with {chief.returncode}:\n{errors[-4000:]}")

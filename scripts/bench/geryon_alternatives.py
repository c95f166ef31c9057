"""What users have without trepak, on the same network and links: throughput alone.

TensorFlow's ParameterServerStrategy over plain gRPC, with whole variables (its default) and with
partitioned ones, and over `grpc+geryon`; Horovod's ring is a method of `exchanges`.
"""

from __future__ import annotations

import json
import statistics
import subprocess
from typing import Any

from trepak.scripts.bench.exchanges import Job
from trepak.scripts.bench.ranks import command_of
from trepak.scripts.idle_watch import MOST_STOLEN, undisturbed
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


def measure(lab: Lab, job: Job) -> list[dict[str, Any]]:
    """Returns a row for each method.

    Raises:
        JobError: a process failed, or took too long.
    """
    methods = {  # protocol, and pieces per variable
        PLAIN: ("grpc", 1),
        PARTITIONED: ("grpc", job.workers),
        OVER_FLOWS: ("grpc+geryon", job.workers),
    }
    rows = []
    for method, (protocol, pieces) in methods.items():
        rounds = _run(lab, job, protocol, pieces)
        quiet = undisturbed(rounds, lambda one: one["stolen"])
        step = statistics.median(one["step_s"] for one in quiet)
        rows.append(
            {
                "kind": f"alternatives: {job.network.model}, {job.workers} workers",
                "way": method,
                "step_s": step,
                "quiet_rounds": sum(one["stolen"] <= MOST_STOLEN for one in rounds),
                "images_per_s": job.workers * job.network.batch * job.stretch / step,
                "cpu_idle": statistics.median(one["idle"] for one in rounds),
                "cpu_stolen": statistics.median(one["stolen"] for one in rounds),
            }
        )
    return rows


def _run(lab: Lab, job: Job, protocol: str, pieces: int) -> list[dict[str, Any]]:
    """Runs one cluster; returns what its coordinator measured, by round."""
    spec = {
        "job": job,
        "steps": _STEPS,
        "protocol": protocol,
        "pieces": pieces,
        "hosts": [lab.address(host) for host in lab.host_names],
        "ports": _PORTS,
        "chief": f"{lab.address(HEAD)}:{_CHIEF_PORT}",
    }
    with command_of("tf_parameter_server", spec) as (command, output):
        servers = []
        try:
            for task, host in enumerate(lab.host_names):
                of_task = [*command, "--task", str(task)]
                servers.append(start_in_host(lab, host, of_task, subprocess.DEVNULL))
            _wait(start_in_host(lab, HEAD, command))
            rounds: list[dict[str, Any]] = json.loads(output.read_text())
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

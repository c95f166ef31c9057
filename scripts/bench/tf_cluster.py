"""Runs a cluster of TensorFlow's own parameter servers on the hosts of a lab."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Mapping
from typing import Any

from trepak.scripts.bench.ranks import command_of
from trepak.scripts.lab import state
from trepak.scripts.lab.job import start_in_host
from trepak.scripts.lab.topology import HEAD, Lab
from trepak.scripts.launcher import JobError

_PORTS = (4001, 4002)  # of a worker, and of a server
_CHIEF_PORT = 4003
_TIMEOUT = 1800.0


def run(lab: Lab, module: str, spec: Mapping[str, Any], protocol: str = "grpc") -> Any:
    """Starts a worker and a server on each host, and the coordinator on the lab's head.

    Args:
        lab: that is up.
        module: of this package, see `ranks.command_of`; with `--task` it is a worker and a server.
        spec: what it is to measure; the cluster's addresses are added.
        protocol: of TensorFlow's servers.

    Returns:
        What the coordinator wrote.

    Raises:
        JobError: the coordinator failed, or took too long.
    """
    cluster = {
        "protocol": protocol,
        "hosts": [lab.address(host) for host in lab.host_names],
        "ports": _PORTS,
        "chief": f"{lab.address(HEAD)}:{_CHIEF_PORT}",
    }
    with command_of(module, {**spec, **cluster}) as (command, output):
        servers = []
        try:
            for task, host in enumerate(lab.host_names):
                of_task = [*command, "--task", str(task)]
                servers.append(start_in_host(lab, host, of_task, subprocess.DEVNULL))
            _wait(start_in_host(lab, HEAD, command))
            return json.loads(output.read_text())
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

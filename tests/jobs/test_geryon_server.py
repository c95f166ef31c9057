"""The server protocol grpc+geryon under TensorFlow's own ParameterServerStrategy."""

from __future__ import annotations

import json
import os
import signal
import socket
import sys
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import WORKERS, finish, start

JOBS = ("chief", "worker", "ps")
SECONDS = 120


def free_ports(count: int) -> list[str]:
    with ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return [str(one.getsockname()[1]) for one in sockets]


def trained(protocol: str, out: Path) -> dict[str, Any]:
    """Runs a cluster of three processes; returns what its chief wrote."""
    ports = free_ports(len(JOBS))
    script = [sys.executable, str(WORKERS / "server_protocol.py"), protocol]
    processes = {job: start([*script, job, *ports], out) for job in JOBS}
    code, output = finish(processes.pop("chief"), SECONDS)
    for process in processes.values():  # servers never end
        os.killpg(process.pid, signal.SIGKILL)
        output += finish(process, 10)[1]
    assert code == 0, output[-6000:]
    result: dict[str, Any] = json.loads((out / f"{protocol}.json").read_text())
    return result


@pytest.mark.timeout(3 * SECONDS)
def test_values_are_those_of_plain_grpc(tmp_path: Path) -> None:
    ours, plain = (trained(protocol, tmp_path) for protocol in ("grpc+geryon", "grpc"))
    assert ours["losses"] == plain["losses"]
    for mine, theirs in zip(ours["weights"], plain["weights"], strict=True):
        np.testing.assert_array_equal(mine, theirs)
    assert ours["losses"][-1] < ours["losses"][0]
    assert plain["bytes"] == {"worker": [0, 0], "ps": [0, 0]}
    # Matrices at low priority, the bias at high; parameters from the server, gradients to it.
    matrices, bias = 4 * (24 * 16 + 16), 4 * 16
    for job in ("worker", "ps"):
        high, low = ours["bytes"][job]
        assert low >= 10 * matrices and high >= 10 * bias, ours["bytes"]

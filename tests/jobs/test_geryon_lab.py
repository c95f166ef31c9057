"""Geryon's flows in a lab: the switch counts what it should, and links that are cut."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from conftest import WORKERS, finish, start, wait_for
from test_lab import TREPAK, needs_lab

from trepak.scripts.lab import network, state
from trepak.scripts.lab.topology import Lab, parse_rate

NAME = f"geryon{os.getpid() % 10000}"
DEADLINE, LIMIT = 4, 10  # seconds: of every wait of the flows; from then on until all know


@pytest.fixture(scope="module")
def lab() -> Iterator[Lab]:
    lab, new = state.up(NAME, hosts=3, rate=parse_rate("200mbit"), priorities=2)
    assert new
    yield lab
    state.down(NAME)


def in_lab(*program: str, json_file: Path | None = None) -> list[str]:
    options = ["--json", str(json_file)] if json_file else []
    script = [sys.executable, str(WORKERS / program[0]), *program[1:]]
    return [TREPAK, "lab", "run", "--name", NAME, "--gloo", *options, "--", *script]


def queues_of(lab: Lab, place: str, device: str) -> set[int]:
    """Returns how many packets each queue of a port has dropped."""
    command = ["tc", "-netns", lab.namespace(place), "-statistics", "qdisc", "show", "dev", device]
    shown = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    return {int(dropped) for dropped in re.findall(r"\(dropped (\d+),", shown)}


@needs_lab
def test_connections_do_not_depend_on_the_machines_settings(lab: Lab) -> None:
    here = ["ip", "netns", "exec", lab.namespace("w0")]
    for command, setting in [
        (["ip", "route", "show"], "congctl cubic"),
        (["cat", "/proc/sys/net/ipv4/tcp_slow_start_after_idle"], "0"),
        (["cat", "/proc/sys/net/ipv4/tcp_wmem"], "65536"),
    ]:
        shown = subprocess.run([*here, *command], capture_output=True, text=True, check=True).stdout
        assert setting in shown


@needs_lab
@pytest.mark.timeout(200)
def test_the_switch_counts_the_bytes_of_each_priority(lab: Lab, tmp_path: Path) -> None:
    """Each host's marked bytes are the payload of its high flows, and a little of headers."""
    report = tmp_path / "run.json"
    command = in_lab("run.py", "flows:bytes", json_file=report)
    code, output = finish(start(command, tmp_path), 180)
    assert code == 0, output[-3000:]
    traffic = json.loads(report.read_text())["bytes_by_class"]
    received = 0
    for rank, host in enumerate(lab.host_names):
        outcome = json.loads((tmp_path / f"{rank}.json").read_text())
        high, low = outcome["flows.bytes_of_each_priority"]["value"]
        assert high > 1e6 and low > 1e6, "both are used"
        marked, unmarked = traffic[host]["sent"]
        assert high < marked < 1.1 * high + 50_000, (host, high, marked)
        assert unmarked > low, (host, low, unmarked)
        received += traffic[host]["received"][0]
    sent = sum(traffic[host]["sent"][0] for host in lab.host_names)
    assert received == pytest.approx(sent, rel=0.05), "the switch keeps them apart too"
    for place, device in [("switch", "w0"), ("w0", "eth0")]:
        assert queues_of(lab, place, device) == {0}, "a full port held senders back, dropped none"


@needs_lab
@pytest.mark.timeout(200)
def test_a_cut_link_is_named_on_every_survivor(lab: Lab, tmp_path: Path) -> None:
    """Nothing says that the link is cut: silence does, after the deadline."""
    env = {"TREPAK_DEADLINE_SECONDS": str(DEADLINE)}
    process = start(in_lab("victim.py", "fit", "geryon", "overlap"), tmp_path, env)
    survivors = [tmp_path / f"{rank}.json" for rank in (0, 2)]
    try:
        wait_for([tmp_path / f"pid.{rank}" for rank in range(3)])
        network.set_up(lab, "w1", False)
        cut = time.time()
        wait_for(survivors, 60)
    finally:
        network.set_up(lab, "w1", True)  # or the launcher waits long for a host that is silent
        os.killpg(process.pid, signal.SIGINT)
        _, output = finish(process, 30)
        state.stop_processes(lab)
    for path in survivors:
        caught = json.loads(path.read_text())["caught"]
        assert caught, output[-3000:]
        assert caught["time"] - cut < DEADLINE + LIMIT, caught
        assert "rank 1" in caught["error"], caught

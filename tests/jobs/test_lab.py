"""`trepak lab`: real namespaces, a real bridge, real sockets; needs root."""

from __future__ import annotations

import json
import os
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from conftest import JOB_ENVIRONMENT, WORKERS, finish, horovodrun, start
from undisturbed import undisturbed

from trepak.scripts.lab import network, state
from trepak.scripts.lab.job import start_in_host
from trepak.scripts.lab.topology import SWITCH, Lab, parse_rate
from trepak.scripts.lab.traffic import Sender, measure

TREPAK = str(Path(sys.executable).parent / "trepak")
SCRIPT = [sys.executable, str(WORKERS / "uneven.py")]
NAME = f"test{os.getpid() % 10000}"  # beside whatever labs the user has
SECONDS = 1.5  # of a measurement
REPORTED = 10.0  # seconds from a rank's death to the end of the job


def why_impossible() -> str:
    try:
        network.check_machine()
    except network.LabError as error:
        return str(error)
    return ""


needs_lab = pytest.mark.skipif(bool(why_impossible()), reason=why_impossible() or "possible")


def trepak(*arguments: str, out: Path | None = None, timeout: float = 100) -> Any:
    environment = {**os.environ, **JOB_ENVIRONMENT, "OUT": str(out or "")}
    return subprocess.run(
        [TREPAK, "lab", *arguments],
        env=environment,
        capture_output=True,
        text=True,
        stdin=subprocess.DEVNULL,
        timeout=timeout,
    )


def run_script(lab: Lab, out: Path, *options: str) -> tuple[Any, list[dict[str, Any]]]:
    """Runs the script on all hosts of a lab; returns the process and what each rank wrote."""
    done = trepak("run", "--name", lab.name, *options, "--", *SCRIPT, out=out)
    ranks = [json.loads(file.read_text()) for file in sorted(out.glob("[0-9].json"))]
    return done, ranks


def left_of(name: str) -> list[str]:
    """Returns whatever is left of a lab: devices, namespaces, files."""
    spaces = [p.name for p in Path("/run/netns").glob(f"trepak-{name}-*")]
    files = [str(p) for p in Path("/etc/netns").glob(f"trepak-{name}-*")]
    files += [str(p) for p in state.FOLDER.glob(f"{name}*")]
    return spaces + files


@pytest.fixture(scope="module")
def lab() -> Any:
    lab, new = state.up(NAME, hosts=3, rate=parse_rate("200mbit"), priorities=2)
    assert new
    yield lab
    state.down(NAME)
    assert left_of(NAME) == []


def rates_of(
    lab: Lab, senders: list[Sender], good: Callable[[dict[str, float]], bool]
) -> dict[str, float]:
    """Returns the rates of streams into w0: the first ones that are good, or the last ones."""
    return undisturbed(lambda: measure(lab, "w0", senders, SECONDS), good)


def rate_of(lab: Lab, expected: float) -> float:
    """Returns the rate from w1 to w0, if possible within 10% of what is expected."""
    senders = [Sender("w1", "all")]
    return rates_of(lab, senders, lambda rates: abs(rates["all"] / expected - 1) <= 0.1)["all"]


def share_of(best: str, rates: dict[str, float]) -> float:
    return rates[best] / sum(rates.values())


@needs_lab
def test_up_again_finds_the_lab(lab: Lab) -> None:
    again = trepak("up", "--name", NAME, "-n", "3", "--rate", "200mbit")
    assert (again.returncode, again.stderr) == (0, "")
    assert "is up already: 3 hosts at 200mbit, 2 priorities" in again.stdout
    other = trepak("up", "--name", NAME, "-n", "4", "--rate", "200mbit")
    assert other.returncode == 1
    assert "it differs: 3 hosts at 200mbit" in other.stderr
    status = trepak("status")
    assert status.returncode == 0
    assert all(text in status.stdout for text in (NAME, "w2", lab.address("w2"), "200mbit"))


@needs_lab
def test_labs_stand_side_by_side(lab: Lab) -> None:
    name = f"{NAME}b"
    assert trepak("up", "--name", name, "-n", "2", "--rate", "50mbit").returncode == 0
    try:
        other = state.read(name)
        assert other is not None
        labs = [lab, other]
        with ThreadPoolExecutor() as pool:  # both at the same time
            rates = list(pool.map(rate_of, labs, [lab.rate, 50e6]))
        assert rates == pytest.approx([lab.rate, 50e6], rel=0.10)
    finally:
        assert trepak("down", "--name", name).returncode == 0
    assert left_of(name) == []
    assert "is not up" in trepak("down", "--name", name).stdout
    assert network.exists(lab)


@needs_lab
@pytest.mark.parametrize("seconds", [0.15, 0.3, 0.45])
def test_down_removes_what_a_crash_left(seconds: float) -> None:
    """`up` is killed while it works, at different times; `up` and `down` must work after it."""
    name = f"{NAME}c"
    process = subprocess.Popen([TREPAK, "lab", "up", "--name", name, "-n", "12"])
    time.sleep(seconds)
    process.kill()
    process.wait()
    assert trepak("up", "--name", name, "-n", "12").returncode == 0
    crashed = state.read(name)
    assert crashed is not None and network.exists(crashed)
    switch = crashed.namespace(SWITCH)
    subprocess.run(["ip", "-netns", switch, "link", "delete", "w3"], check=True)
    assert not network.exists(crashed)
    assert trepak("down", "--name", name).returncode == 0
    assert left_of(name) == []


def devices_of(pid: int) -> str:
    """Returns the network devices that a process sees."""
    return Path(f"/proc/{pid}/net/dev").read_text()


@needs_lab
def test_down_ends_its_own_processes_only() -> None:
    name = f"{NAME}d"
    lab, _ = state.up(name, hosts=1, rate=10**9, priorities=1)
    ours = start_in_host(lab, "w0", ["sleep", "300"])
    foreign = subprocess.Popen(["ip", "netns", "exec", lab.namespace("w0"), "sleep", "300"])
    try:
        deadline = time.monotonic() + 10
        while len(network.processes(lab)) < 2:
            assert time.monotonic() < deadline, network.processes(lab)
            time.sleep(0.05)
        done = trepak("down", "--name", name)
        assert done.returncode == 0
        assert f"process {foreign.pid} (sleep) on w0 was not started by the lab" in done.stderr
        assert ours.wait(10) != 0
        assert foreign.poll() is None
        assert "eth0" not in devices_of(foreign.pid), "its cable is gone"
    finally:
        foreign.kill()
        foreign.wait()
        ours.kill()
        ours.communicate()
    assert left_of(name) == []


@needs_lab
def test_high_priority_gets_the_port(lab: Lab) -> None:
    high = lab.classes[0]
    assert high is not None
    before = network.read_traffic(lab)
    senders = [Sender("w1", "low"), Sender("w2", "high", high)]
    full = 0.9 * lab.rate
    rates = rates_of(
        lab, senders, lambda rates: share_of("high", rates) >= 0.90 and sum(rates.values()) >= full
    )
    assert share_of("high", rates) >= 0.90, rates
    assert sum(rates.values()) == pytest.approx(lab.rate, rel=0.10)
    after = network.read_traffic(lab)
    sent = {host: after[host].since(before[host]).sent for host in lab.host_names}
    assert sent["w2"][0] > SECONDS * 0.9 * lab.rate / 8 * 0.9, "counted as high where it was sent"
    assert sent["w1"][0] < 10_000 and sent["w1"][1] > 0
    received = after["w0"].since(before["w0"]).received
    assert received[0] > 0.9 * sent["w2"][0]


@needs_lab
def test_eight_priorities_are_served_in_order() -> None:
    name = f"{NAME}p"
    lab, _ = state.up(name, hosts=4, rate=parse_rate("100mbit"), priorities=8)
    try:
        assert len(lab.classes) == 8
        first, fifth = lab.classes[0] or 0, lab.classes[4] or 0
        senders = [Sender("w1", "none"), Sender("w2", "fifth", fifth)]
        for best, more in (("fifth", []), ("first", [Sender("w3", "first", first)])):
            rates = rates_of(
                lab, [*senders, *more], lambda rates, best=best: share_of(best, rates) >= 0.90
            )
            assert share_of(best, rates) >= 0.90, rates
        received = network.read_traffic(lab)["w0"].received
        assert all(received[number] > 0 for number in (0, 4, 7))
    finally:
        state.down(name)


@needs_lab
def test_links_change_for_one_run(lab: Lab) -> None:
    network.set_link(lab, "w1", parse_rate("20mbit"))
    slow = rate_of(lab, 20e6)
    network.set_link(lab, "w1", lab.rate)
    fast = rate_of(lab, lab.rate)
    assert slow == pytest.approx(20e6, rel=0.10)
    assert fast == pytest.approx(lab.rate, rel=0.10)


def median_ms(times: list[float]) -> float:
    return 1000 * statistics.median(times[5:])


TO_ITSELF = """
import socket, threading, time
listener, worst = socket.create_server(("", 0)), []
for _ in range(10):  # not every connection waits
    client = socket.create_connection(listener.getsockname())
    server, times = listener.accept()[0], []
    for _ in range(12):
        began, left = time.perf_counter(), 105_000
        threading.Thread(target=client.sendall, args=(bytes(left),)).start()
        while left:
            left -= len(server.recv(left))
        times.append(time.perf_counter() - began)
        time.sleep(0.01)
    worst.append(sorted(times)[-3])  # but for what disturbs one or two
print(max(worst))
"""


@needs_lab
def test_a_host_answers_itself_at_once(lab: Lab) -> None:
    """Packets as large as a connection's window would each wait for an acknowledgement."""

    def seconds() -> float:
        python = start_in_host(lab, "w0", [sys.executable, "-c", TO_ITSELF])
        return float(python.communicate(timeout=60)[0])

    assert undisturbed(seconds, lambda took: took < 0.02) < 0.02


@needs_lab
@pytest.mark.parametrize("gloo", [False, True], ids=["mpi", "gloo"])
def test_ranks_run_on_the_hosts(lab: Lab, tmp_path: Path, gloo: bool) -> None:
    report = tmp_path / "lab.json"
    options = ["--delay", "uniform:40:40ms@w1", "--link", "w2=100mbit", "--json", str(report)]
    done, ranks = run_script(lab, tmp_path, *options, *(["--gloo"] if gloo else []))
    assert done.returncode == 0, done.stdout + done.stderr
    assert [(r["host"], r["local_rank"], r["cross_rank"], r["size"]) for r in ranks] == [
        ("w0", 0, 0, 3),
        ("w1", 0, 1, 3),
        ("w2", 0, 2, 3),
    ]
    for rank in range(3):
        assert f"[w{rank}] rank {rank} of 3 on w{rank}\n" in done.stdout
    assert median_ms(ranks[1]["compute"]) >= 40
    assert median_ms(ranks[0]["waited"]) >= 25 > median_ms(ranks[0]["compute"])
    written = json.loads(report.read_text())
    assert written["unevenness"]["delays"] == {"w1": ["uniform:40:40ms"]}
    assert written["unevenness"]["links_bits_per_second"] == {"w2": 100_000_000}
    idle = written["environment"]["cpu_idle_share_of_median_second"]
    assert written["believable"] == (idle >= 0.20)
    assert written["np"] == 3 and written["exit_code"] == 0 and written["lost"] == []
    traffic = written["bytes_by_class"]
    assert all(sum(traffic[host]["sent"]) > 100_000 for host in lab.host_names)
    assert network.processes(lab) == {}


def test_same_script_runs_under_horovodrun_and_mpirun(tmp_path: Path) -> None:
    mpirun = ["mpirun", "--allow-run-as-root", "-np", "2", "--oversubscribe"]
    for name, launcher in (("horovodrun", horovodrun(2, gloo=False)), ("mpirun", mpirun)):
        code, output = finish(start([*launcher, *SCRIPT], tmp_path / name), 90)
        assert code == 0, output[-3000:]
        ranks = [json.loads((tmp_path / name / f"{r}.json").read_text()) for r in range(2)]
        assert [(rank["local_rank"], rank["size"]) for rank in ranks] == [(0, 2), (1, 2)]


@needs_lab
@pytest.mark.parametrize("gloo", [False, True], ids=["mpi", "gloo"])
def test_killed_rank_is_named(lab: Lab, tmp_path: Path, gloo: bool) -> None:
    options = ["--kill", "w1@step:10", "--delay", "uniform:100:100ms"]
    done, ranks = run_script(lab, tmp_path, *options, *(["--gloo"] if gloo else []))
    assert time.time() - (tmp_path / "alive.1").stat().st_mtime < REPORTED
    assert done.returncode != 0
    assert "trepak lab: rank 1 on host w1 was ended by signal 9." in done.stderr
    assert ranks == [], "no rank gets to the end"
    assert network.processes(lab) == {}


@needs_lab
def test_job_ends_with_its_launcher(lab: Lab, tmp_path: Path) -> None:
    """`trepak lab run` is killed: `down` and the next run find its ranks, and end them."""
    command = [TREPAK, "lab", "run", "--name", NAME, "--", "sleep", "200"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    deadline = time.monotonic() + 30
    while list(network.processes(lab).values()).count("w2") < 2:  # orted and sleep
        assert time.monotonic() < deadline, network.processes(lab)
        time.sleep(0.1)
    busy = trepak("run", "--name", NAME, "--", "true")
    assert busy.returncode == 1
    assert f"a job runs in the lab {NAME} already" in busy.stderr
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=40)
    assert process.returncode != 0
    assert network.processes(lab) == {}


@needs_lab
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["run", "--name", "none", "--", "true"], "no lab none is up. `trepak lab up"),
        (["run", "--name", NAME], "what shall run?"),
        (
            ["run", "--name", NAME, "-np", "0", "--", "true"],
            "-np: must be a whole number from 1 to 1024",
        ),
        (["run", "--name", NAME, "--slow", "w9=2", "--", "true"], "no host 'w9'"),
        (["up", "--name", "x", "--rate", "fast"], "'fast' is not a rate"),
    ],
)
def test_wrong_usage_is_explained(lab: Lab, arguments: list[str], message: str) -> None:
    done = trepak(*arguments)
    assert done.returncode == 2
    assert message in done.stderr
    assert "Traceback" not in done.stderr

"""`trepak lab`: real namespaces, a real bridge, real sockets; needs root."""

from __future__ import annotations

import argparse
import json
import os
import signal
import statistics
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from conftest import JOB_ENVIRONMENT, WORKERS, finish, horovodrun, start

from trepak.scripts import bench_lab
from trepak.scripts.lab import network, state, unevenness
from trepak.scripts.lab.job import host_of, ranks_by_host, start_in_host
from trepak.scripts.lab.topology import SWITCH, Lab, format_rate, parse_rate
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


@pytest.mark.parametrize(
    ("text", "rate"), [("1gbit", 10**9), ("200mbit", 2 * 10**8), ("2.5Gbit", 25 * 10**8)]
)
def test_rates(text: str, rate: int) -> None:
    assert parse_rate(text) == rate
    assert parse_rate(format_rate(rate)) == rate


@pytest.mark.parametrize("text", ["", "fast", "10", "-1gbit", "1mbyte", "10kbit"])
def test_rates_that_are_none(text: str) -> None:
    with pytest.raises(ValueError, match="rate"):
        parse_rate(text)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"hosts": 0}, "1 to 64 hosts"),
        ({"hosts": 65}, "1 to 64 hosts"),
        ({"priorities": 9}, "1 to 8 priorities"),
        ({"name": "a/b"}, "letters, digits and dashes"),
        ({"links": {"w7": 1}}, "no host 'w7'; it has w0 to w2"),
    ],
)
def test_labs_that_cannot_be(values: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Lab(**{"name": "lab", "hosts": 3, "rate": 10**9, **values})


def test_ranks_fill_the_hosts_evenly() -> None:
    lab = Lab("lab", hosts=4, rate=10**9)
    assert {h: len(r) for h, r in ranks_by_host(lab, 6).items()} == dict(w0=2, w1=2, w2=1, w3=1)
    assert [host_of(lab, 6, rank) for rank in range(6)] == ["w0", "w0", "w1", "w1", "w2", "w3"]
    assert list(ranks_by_host(lab, 2)) == ["w0", "w1"]


def read_uneven(**options: Any) -> unevenness.Uneven:
    empty = {"link": [], "slow": [], "delay": [], "kill": [], "seed": 7}
    return unevenness.read(Lab("lab", 3, 10**9), argparse.Namespace(**empty | options))


def test_unevenness_becomes_each_hosts_variables() -> None:
    uneven = read_uneven(
        link=["w2=20mbit"],
        slow=["w1=1.5"],
        delay=["uniform:0:50ms", "probability:0.1:6@w1,w2"],
        kill=["w0@step:30"],
    )
    assert uneven.links == {"w2": 20_000_000}
    variables = uneven.variables(Lab("lab", 3, 10**9))
    both = {"TREPAK_SEED": "7", "TREPAK_DELAY": "uniform:0:50ms"}
    assert variables["w0"] == {**both, "TREPAK_KILL": "30"}
    late = "uniform:0:50ms,probability:0.1:6"
    assert variables["w1"] == {**both, "TREPAK_DELAY": late, "TREPAK_SLOW": "1.5"}
    assert variables["w2"] == {**both, "TREPAK_DELAY": late}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"slow": ["w1"]}, "--slow w1: write it like w1=VALUE"),
        ({"slow": ["w1=0.5"]}, "number from 1 on"),
        ({"slow": ["w9=2"]}, "no host 'w9'"),
        ({"link": ["w1=slow"]}, "not a rate"),
        ({"delay": ["often:1"]}, "not a delay. Write uniform:LOW:HIGH"),
        ({"delay": ["uniform:9:5ms"]}, "above the higher one"),
        ({"delay": ["probability:2:1s"]}, "between 0 and 1"),
        ({"delay": ["uniform:0:5ms@w8"]}, "no host 'w8'"),
        ({"kill": ["w1@30"]}, "write it like w1@step:30"),
    ],
)
def test_unevenness_that_cannot_be(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        read_uneven(**options)


def test_without_root_one_message_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    with pytest.raises(network.LabError, match="a lab needs root: .* Run it with sudo"):
        network.check_machine()


def test_without_htb_one_message_says_so(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "tc").write_text(
        "#!/bin/sh\necho Error: Specified qdisc kind is unknown. >&2; exit 2"
    )
    (tmp_path / "tc").chmod(0o755)
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    with pytest.raises(network.LabError, match="no network namespaces, bridge, veth, htb or u32"):
        network.check_machine()


def shared(lab: Lab, senders: list[Sender], best: str) -> dict[str, float]:
    """Returns the rates of streams into w0, where `best` got its largest share.

    Of three: a sender that the CPU keeps waiting leaves the port to the others.
    """
    found = [measure(lab, "w0", senders, SECONDS) for _ in range(3)]
    return max(found, key=lambda rates: rates[best] / sum(rates.values()))


def undisturbed(lab: Lab) -> float:
    """Returns the rate from w1 to w0, the best of three: a busy CPU can only lower it."""
    return max(measure(lab, "w0", [Sender("w1", "all")], SECONDS)["all"] for _ in range(3))


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
            rates = list(pool.map(undisturbed, labs))
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
    rates = shared(lab, [Sender("w1", "low"), Sender("w2", "high", high)], "high")
    assert rates["high"] / sum(rates.values()) >= 0.90, rates
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
        rates = shared(lab, senders, "fifth")
        assert rates["fifth"] / sum(rates.values()) >= 0.90, rates
        rates = shared(lab, [*senders, Sender("w3", "first", first)], "first")
        assert rates["first"] / sum(rates.values()) >= 0.90, rates
        received = network.read_traffic(lab)["w0"].received
        assert all(received[number] > 0 for number in (0, 4, 7))
    finally:
        state.down(name)


@needs_lab
def test_links_change_for_one_run(lab: Lab) -> None:
    network.set_link(lab, "w1", parse_rate("20mbit"))
    slow = undisturbed(lab)
    network.set_link(lab, "w1", lab.rate)
    fast = undisturbed(lab)
    assert slow == pytest.approx(20e6, rel=0.10)
    assert fast == pytest.approx(lab.rate, rel=0.10)


def median_ms(times: list[float]) -> float:
    return 1000 * statistics.median(times[5:])


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
    assert written["believable"] == (written["environment"]["cpu_idle_share"] >= 0.20)
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
        (["run", "--name", NAME, "-np", "0", "--", "true"], "-np must be at least 1"),
        (["run", "--name", NAME, "--slow", "w9=2", "--", "true"], "no host 'w9'"),
        (["up", "--name", "x", "--rate", "fast"], "'fast' is not a rate"),
    ],
)
def test_wrong_usage_is_explained(lab: Lab, arguments: list[str], message: str) -> None:
    done = trepak(*arguments)
    assert done.returncode == 2
    assert message in done.stderr
    assert "Traceback" not in done.stderr


def bench_round(link: str, error: float, share: float, stolen: float) -> dict[str, Any]:
    return {
        "kind": "streams into one host",
        "link": link,
        "rate_error": error,
        "high_share": share,
        "cpu_idle": 0.9 - stolen,
        "cpu_stolen": stolen,
    }


def test_bench_claims_are_the_worst_rates_medians_of_undisturbed_rounds() -> None:
    rows = [bench_round("50mbit", 0.05, 0.99, 0.0) for _ in range(3)]
    rows += [bench_round("50mbit", 0.80, 0.60, 0.4) for _ in range(5)]  # somebody took the CPU
    rows += [bench_round("1gbit", error, 0.97, 0.01) for error in (0.03, 0.06, 0.07)]
    workers = [{"times": [10.0, 10.2, 10.4], "idle": 0.3}, {"times": [10.0] * 3, "idle": 0.4}]
    report = bench_lab.summarize(rows, workers, {})
    assert report.claims["lab.rate_error"].value == 0.06
    assert report.claims["lab.priority_share"].value == 0.97
    assert report.claims["lab.emulated_compute_error"].value == pytest.approx(0.0)
    assert report.idle_share == 0.3 and report.believable


def test_bench_counts_all_rounds_if_none_was_undisturbed() -> None:
    rows = [bench_round("50mbit", error, 0.9, 0.2) for error in (0.1, 0.3, 0.5)]
    report = bench_lab.summarize(rows, [{"times": [10.0] * 3, "idle": 0.1}], {})
    assert report.claims["lab.rate_error"].value == 0.3
    assert not report.believable

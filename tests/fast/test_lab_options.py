"""What a lab is told and what its bench claims: values alone, no root needed."""

from __future__ import annotations

import argparse
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from trepak.scripts.bench import bench_lab
from trepak.scripts.lab import host_conditions, network
from trepak.scripts.lab.job import Job, entering, host_of, ranks_by_host
from trepak.scripts.lab.topology import Lab, format_rate, parse_rate


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
        ({"packet": 100}, "1500 to 65536 bytes"),
        ({"links": {"w7": 1}}, "no host 'w7'; it has w0 to w2"),
    ],
)
def test_labs_that_cannot_be(values: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Lab(**{"name": "lab", "hosts": 3, "rate": 10**9, **values})


def test_packets_are_short_unless_told() -> None:
    """0.25 ms of the link, which hold up urgent ones; at least two plain packets."""
    lab = Lab("lab", hosts=4, rate=10**9)
    assert [lab.largest_packet(rate) for rate in (10**6, 10**9, 10**11)] == [3000, 31250, 65536]
    assert Lab("lab", hosts=4, rate=10**9, packet=8000).largest_packet(10**9) == 8000


def test_ranks_fill_the_hosts_evenly() -> None:
    lab = Lab("lab", hosts=4, rate=10**9)
    assert {h: len(r) for h, r in ranks_by_host(lab, 6).items()} == dict(w0=2, w1=2, w2=1, w3=1)
    assert [host_of(lab, 6, rank) for rank in range(6)] == ["w0", "w0", "w1", "w1", "w2", "w3"]
    assert list(ranks_by_host(lab, 2)) == ["w0", "w1"]


def test_an_agent_that_somebody_still_writes_can_be_called(tmp_path: Path) -> None:
    """As a process does that another thread forks, until it executes its own program."""
    agent = tmp_path / "ssh"
    agent.write_text("#!/bin/sh\nexit 7\n")
    agent.chmod(0o755)
    with agent.open("a"):
        assert subprocess.run(entering(agent), check=False).returncode == 7


def test_what_starts_the_ranks_of_a_job() -> None:
    assert Job(["true"], 2).launcher == "mpirun"
    assert Job(["true"], 2, gloo=True).launcher == "horovodrun --gloo"
    assert Job(["true"], 2, elastic=["--hosts", "hosts"]).launcher == "trepak elastic"


def read_uneven(**options: Any) -> host_conditions.HostConditions:
    empty = {"link": [], "slow": [], "delay": [], "kill": [], "seed": 7}
    return host_conditions.read(Lab("lab", 3, 10**9), argparse.Namespace(**empty | options))


def test_unevenness_becomes_each_hosts_variables() -> None:
    conditions = read_uneven(
        link=["w2=20mbit"],
        slow=["w1=1.5"],
        delay=["uniform:0:50ms", "probability:0.1:6@w1,w2"],
        kill=["w0@step:30"],
    )
    assert conditions.links == {"w2": 20_000_000}
    variables = conditions.variables(Lab("lab", 3, 10**9))
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

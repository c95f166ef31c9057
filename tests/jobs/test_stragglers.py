"""StragglerMonitor: names who made the others wait, and nobody where nobody did."""

from __future__ import annotations

import json
import os
import random
import socket
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import WORKERS
from test_lab import needs_lab, trepak

from trepak.horovod_ext.straggler_verdict import verdict_of
from trepak.horovod_ext.stragglers import RoundsOfRank, StragglerTable
from trepak.scripts import top
from trepak.scripts.errors import UserError
from trepak.scripts.lab import state
from trepak.scripts.lab.topology import Lab, parse_rate
from trepak.tf_plugins.callbacks import straggler_monitor

HOSTS = 4
SCRIPT = [sys.executable, str(WORKERS / "monitored.py")]
NAME = f"slow{os.getpid() % 10000}"


def table_of(ready: Any) -> StragglerTable:
    """Returns the table of steps whose gradients are ready at [ranks, steps] after the begin."""
    ready = np.asarray(ready, float)
    table = StragglerTable([f"h{rank}" for rank in range(len(ready))])
    table.add(ready, ready.max(axis=0) + 0.01 - ready)
    return table


def test_table_tells_who_waited_for_whom() -> None:
    table = table_of([[0.10, 0.10], [0.15, 0.10], [0.10, 0.30]])
    first, second, third = table.reports()
    assert first.waited_seconds == pytest.approx(0.05 + 0.20)
    assert first.waited_for == 2
    assert (second.waited_seconds, second.waited_for) == (pytest.approx(0.20), 2)
    assert (third.waited_seconds, third.waited_for) == (pytest.approx(0.05), 1)
    assert second.delayed_seconds == pytest.approx(0.05)
    assert third.delayed_seconds == pytest.approx(0.20)
    assert [r.last_share for r in table.reports()] == [0.0, 0.5, 0.5]
    assert table.total_seconds == pytest.approx(0.16 + 0.31)
    assert "too few" in verdict_of(table)


def test_verdict_tells_of_ranks_that_did_not_answer() -> None:
    for times, words in ((0, "."), (2, "as it did not answer: 2.")):
        planner = RoundsOfRank(7, 7, 14, 0, 0, 0.5, 0.1, prediction_error=0.2, taken_out=times)
        other = RoundsOfRank(7, 7, 14, 0, 0, 1.5, 0.1)
        table = StragglerTable(["a", "b"])
        table.add_at_own_pace([30, 30], [3.0, 3.0], [0.1, 0.1], [planner, other])
        verdict = verdict_of(table)
        assert verdict.startswith("The ranks met at 7 barriers. Rank 1 on b waited longest")
        assert verdict.endswith(words)
        assert ("did not answer" in verdict) == (times > 0)


def test_table_adds_up() -> None:
    rng = np.random.default_rng(0)
    compute, synchronize = rng.uniform(0.1, 0.2, (2, 3, 100))
    whole, parts = StragglerTable(["a", "b", "c"]), StragglerTable(["a", "b", "c"])
    whole.add(compute, synchronize)
    for begin in range(0, 100, 25):
        part = slice(begin, begin + 25)
        parts.add(compute[:, part], synchronize[:, part])
    for one, other in zip(whole.reports(), parts.reports(), strict=True):
        assert one.waited_seconds == pytest.approx(other.waited_seconds)
        assert one.last_share == other.last_share
    with pytest.raises(ValueError, match="of 3 ranks"):
        whole.add(compute[:2], synchronize[:2])


@pytest.mark.parametrize("seed", range(20))
def test_slow_rank_is_named_and_noise_is_not(seed: int) -> None:
    rng = np.random.default_rng(seed)
    ready = rng.normal(0.1, 0.01, (4, 50)).clip(0.05)
    assert table_of(ready).stragglers() == []
    slow = int(rng.integers(4))
    ready[slow] *= 1.3
    assert [r.rank for r in table_of(ready).stragglers()] == [slow]
    assert f"rank {slow} on h{slow} made the others wait" in verdict_of(table_of(ready))


def test_one_rank_waits_for_nobody() -> None:
    table = table_of(np.full((1, 50), 0.1))
    assert table.stragglers() == []
    assert table.reports()[0].waited_for is None


@pytest.fixture(scope="module")
def lab() -> Iterator[Lab]:
    lab, _ = state.up(NAME, hosts=HOSTS, rate=parse_rate("1gbit"), priorities=1)
    yield lab
    state.down(NAME)


def run_monitored(out: Path, *options: str) -> tuple[Any, list[dict[str, Any]]]:
    out.mkdir(exist_ok=True)
    done = trepak("run", "--name", NAME, *options, "--", *SCRIPT, out=out)
    assert done.returncode == 0, done.stdout + done.stderr
    outcomes = [json.loads((out / f"{rank}.json").read_text()) for rank in range(HOSTS)]
    assert all(outcome == outcomes[0] for outcome in outcomes), "every rank knows the same"
    assert outcomes[0]["steps"] == 49, "all but the first"
    return done, outcomes


def check_planted(out: Path, seed: int) -> None:
    """A rank chosen by the seed is slowed by 1.3: it is named, and no other."""
    slow = random.Random(seed).randrange(HOSTS)
    _, outcomes = run_monitored(out, "--slow", f"w{slow}=1.3", "--seed", str(seed))
    assert outcomes[0]["stragglers"] == [slow], outcomes[0]


def check_even(out: Path, seed: int) -> None:
    _, outcomes = run_monitored(out, "--seed", str(seed))
    assert outcomes[0]["stragglers"] == [], outcomes[0]


@needs_lab
def test_planted_straggler_is_named(lab: Lab, tmp_path: Path) -> None:
    check_planted(tmp_path, seed=0)


@needs_lab
def test_even_ranks_raise_no_alarm(lab: Lab, tmp_path: Path) -> None:
    check_even(tmp_path, seed=0)


@needs_lab
@pytest.mark.soak
@pytest.mark.parametrize("seed", range(20))
def test_planted_straggler_is_named_every_time(lab: Lab, tmp_path: Path, seed: int) -> None:
    check_planted(tmp_path / "slow", seed)
    check_even(tmp_path / "even", seed)


@needs_lab
def test_findings_are_shown_everywhere(
    lab: Lab, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))  # where no other job says how it is
    # The port is a host's own: each has its own network.
    os.environ["PORT"] = "9187"
    try:
        done, outcomes = run_monitored(tmp_path, "--delay", "uniform:60:60ms@w2")
    finally:
        del os.environ["PORT"]
    assert outcomes[0]["stragglers"] == [2]
    # A machine that stands still makes others wait longer, but no longer than they say themselves.
    others = [one["waited_seconds"] for one in outcomes[0]["ranks"] if one["rank"] != 2]
    delayed = outcomes[0]["ranks"][2]["delayed_seconds"]
    assert 0.7 * 49 * 0.06 < delayed <= np.mean(others) + 1e-6, outcomes[0]
    assert "rank 2 on w2 made the others wait" in done.stdout
    for name in ("local", "port"):
        shown = (tmp_path / f"top.{name}").read_text()
        assert "w2" in shown and "made others wait" in shown and "w3" in shown, shown
    assert list((tmp_path / "tb").glob("events.out.tfevents.*"))
    assert not list(top.sinks.status_folder().glob("*.json")), "the job's file goes with it"


def test_top_forgets_jobs_that_were_killed(tmp_path: Path) -> None:
    rank = {"rank": 0, "host": "h", "compute_seconds": 1.0, "waited_seconds": 0.0}
    rank |= {"delayed_seconds": 0.0, "last_share": 0.0}
    job = {"pid": os.getpid(), "command": "x", "time": time.time(), "steps": 1, "seconds": 1.0}
    (tmp_path / "1.json").write_text(json.dumps(job | {"ranks": [rank]}))
    (tmp_path / "2.json").write_text(json.dumps(job | {"pid": 2**22 + 1, "ranks": [rank]}))
    (tmp_path / "3.json").write_text("{")
    assert [found["pid"] for found in top.local_jobs(tmp_path)] == [os.getpid()]
    assert not (tmp_path / "2.json").exists()


def listening(port: int) -> list[str]:
    """Returns the addresses at which somebody here listens to a port, as hexadecimals."""
    found = []
    for table in ("tcp", "tcp6"):
        for line in Path(f"/proc/net/{table}").read_text().splitlines()[1:]:
            address, number = line.split()[1].split(":")
            if line.split()[3] == "0A" and int(number, 16) == port:
                found.append(address)
    return found


@pytest.mark.parametrize(
    ("address", "listens"),
    [
        (None, "0100007F"),  # 127.0.0.1, as the kernel writes it
        ("localhost", "0100007F"),
        ("127.0.0.2", "0200007F"),
        ("0.0.0.0", "00000000"),
    ],
)
def test_metrics_are_served_at_one_address(
    address: str | None, listens: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(straggler_monitor.basics, "rank", lambda: 0)
    monkeypatch.setattr(straggler_monitor.exchange, "gather", lambda value, name: [value])
    with socket.create_server(("127.0.0.1", 0)) as one:
        port = one.getsockname()[1]
    monitor = straggler_monitor.StragglerMonitor(port=port, address=address)
    monitor._open_sinks()
    try:
        assert listening(port) == [listens]
        for sink in monitor._sinks:
            sink.write(table_of(np.full((2, 50), 0.1)))
        asked = f"{address if address and address[0] == '1' else '127.0.0.1'}:{port}"
        assert top.scraped_job(asked)["steps"] == 50
    finally:
        monitor._close_sinks()
    assert listening(port) == []


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"port": 0}, "port must be from 1 to 65535, got 0"),
        ({"port": 70000}, "port must be from 1 to 65535"),
        ({"address": "0.0.0.0"}, "needs a port="),
        ({"port": 9090, "address": ""}, "an IP address"),
        ({"every": 0}, "every must be at least 1"),
    ],
)
def test_monitors_that_cannot_be(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        straggler_monitor.StragglerMonitor(**options)


def test_an_address_of_another_machine_is_explained() -> None:
    for address in ("192.0.2.1", "no-such-host.invalid"):
        with pytest.raises(OSError, match=rf"address '{address}', port 9187: .* an address="):
            straggler_monitor.straggler_sinks.open_sinks(None, 9187, address)


def test_top_says_when_nobody_answers() -> None:
    with pytest.raises(UserError, match="no job answers at 127.0.0.1:9: .*refused.* port="):
        top.show("127.0.0.1:9", once=True)

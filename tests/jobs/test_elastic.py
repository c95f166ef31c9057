"""Elastic mode for real: ranks are killed and added while `fit` runs, and it goes on."""

from __future__ import annotations

import os
import re
import signal
import sys
import time
from pathlib import Path

import pytest
from conftest import WORKERS, finish, start

EPOCHS = 8
ROWS, BATCH = 80, 8
RECORDS = ("horovod", "local_sgd")  # which rows it trains on


def launch(tmp_path: Path, hosts: list[str], np: int, max_np: int, way: str = "") -> tuple:
    """Starts an elastic job; the file of hosts, one `name:slots` a line, may change meanwhile."""
    listing = tmp_path / "hosts"
    listing.write_text("\n".join(hosts) + "\n")
    script = tmp_path / "discover.sh"
    script.write_text(f"#!/bin/sh\ncat {listing}\n")
    script.chmod(0o755)
    horovodrun = str(Path(sys.executable).parent / "horovodrun")
    command = [horovodrun, "--gloo", "-np", str(np), "--min-np", "1", "--max-np", str(max_np)]
    command += ["--network-interface", "lo", "--host-discovery-script", str(script)]
    command += [sys.executable, str(WORKERS / "elastic_fit.py")]
    return start(command, tmp_path, env={"EPOCHS": str(EPOCHS), "WAY": way}), listing


def epochs_seen(tmp_path: Path) -> list[dict[str, str]]:
    log = tmp_path / "log"
    lines = log.read_text().splitlines() if log.exists() else []
    return [dict(re.findall(r"(\w+) (\S+)", line)) for line in lines]


def wait_for_epoch(tmp_path: Path, epoch: int, size: int) -> list[dict[str, str]]:
    deadline = time.monotonic() + 90
    while time.monotonic() < deadline:
        seen = [
            e for e in epochs_seen(tmp_path) if int(e["epoch"]) >= epoch and int(e["size"]) == size
        ]
        if len({e["rank"] for e in seen}) == size:
            return seen
        time.sleep(0.1)
    raise AssertionError(f"epoch {epoch} at size {size} not reached: {epochs_seen(tmp_path)}")


def check_end(tmp_path: Path, code: int, output: str, size: int) -> None:
    assert code == 0, output[-4000:]
    done = [path.read_text().split() for path in tmp_path.glob("done.*")]
    assert [int(d[1]) for d in done] == [size] * size, done
    assert {int(d[2]) for d in done} == {EPOCHS}
    by_epoch: dict[str, set[str]] = {}
    for entry in epochs_seen(tmp_path):
        by_epoch.setdefault(f"{entry['epoch']} at size {entry['size']}", set()).add(
            entry["weights"]
        )
    assert all(len(weights) == 1 for weights in by_epoch.values()), by_epoch


def check_rows(tmp_path: Path) -> None:
    """Checks which rows each start of `fit` has trained on, of the epoch that it began amid."""
    begun = {line for line in (tmp_path / "begun").read_text().splitlines()}
    assert len(begun) == 2, begun  # all ranks began with the same, before and after the change
    trained = [list(map(int, line.split())) for line in (tmp_path / "trained").open()]
    for line in begun:
        fit, epoch, batch, size_before, size = map(int, line.split())
        done = size_before * batch * BATCH  # the first rows, since ranks have every size-th one
        rows = {row for f, e, *some in trained if (f, e) == (fit, epoch) for row in some}
        if fit == 2:
            assert rows == set(range(min(rows), ROWS)), f"{line}: {sorted(rows)}"
            assert done - size * BATCH < min(rows) <= done, f"{line}: {sorted(rows)}"
        whole = [e for f, e, *_ in trained if f == fit and e > epoch]
        for later in set(whole) - ({max(whole)} if fit == 1 else set()):
            rows = [row for f, e, *some in trained if (f, e) == (fit, later) for row in some]
            assert sorted(rows) == list(range(ROWS)), f"epoch {later}: {sorted(rows)}"


@pytest.mark.timeout(240)
@pytest.mark.parametrize("way", ["horovod", "geryon", "local_sgd", "fela_stale"])
def test_goes_on_after_a_rank_is_killed(tmp_path: Path, way: str) -> None:
    # A lost rank's host is not used again, so the ranks live on two.
    process, _ = launch(tmp_path, ["localhost:1", "127.0.0.1:1"], np=2, max_np=2, way=way)
    try:
        seen = wait_for_epoch(tmp_path, 1, size=2)
        time.sleep(0.25)  # in the midst of the next epoch
        os.kill(int(next(e for e in seen if e["rank"] == "1")["pid"]), signal.SIGKILL)
        wait_for_epoch(tmp_path, 2, size=1)
    finally:
        code, output = finish(process, 100)
    check_end(tmp_path, code, output, size=1)
    if way in RECORDS:
        check_rows(tmp_path)


@pytest.mark.timeout(240)
@pytest.mark.parametrize("way", ["horovod", "geryon", "local_sgd", "fela"])
def test_takes_in_a_rank_that_is_added(tmp_path: Path, way: str) -> None:
    process, listing = launch(tmp_path, ["localhost:1"], np=1, max_np=2, way=way)
    try:
        wait_for_epoch(tmp_path, 1, size=1)
        listing.write_text("localhost:2\n")
        wait_for_epoch(tmp_path, 2, size=2)
    finally:
        code, output = finish(process, 100)
    check_end(tmp_path, code, output, size=2)
    if way in RECORDS:
        check_rows(tmp_path)

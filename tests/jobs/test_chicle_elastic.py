"""Linear models in jobs of `trepak elastic` whose hosts leave, come back, and fail."""

from __future__ import annotations

import collections
import json
import os
import random
import re
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from conftest import WORKERS, finish, start
from test_lab import needs_lab

from trepak.scripts.lab import network, state

sys.path.insert(0, str(WORKERS))
import elastic_glm  # noqa: E402

# Names of this machine, which stand for hosts: Horovod would reach others by ssh.
FIRST, SECOND = "localhost", "127.0.0.1"
STEP_SECONDS = 60  # that anything a test waits for may take on a busy machine


class Fit:
    """A job, the file that lists its hosts, and what its ranks have written down."""

    def __init__(self, out: Path, hosts: tuple[str, ...], *launcher: str, fits: int = 1) -> None:
        """Starts it on hosts; the launcher is what begins the command line."""
        from sklearn.datasets import dump_svmlight_file

        self.out, self.fits = out, fits
        dump_svmlight_file(*elastic_glm.samples(), str(out / "samples.svm"), zero_based=False)
        self.list(*hosts)
        trepak = str(Path(sys.executable).parent / "trepak")
        command = [trepak, *launcher, "--", sys.executable, str(WORKERS / "elastic_glm.py")]
        self.printed = out / "printed"
        with self.printed.open("w") as printed:
            self.process = start(command, out, {"FITS": str(fits)}, stdout=printed)

    def list(self, *hosts: str) -> None:
        new = self.out / "hosts.new"
        new.write_text("".join(f"{host}:1\n" for host in hosts))
        new.replace(self.out / "hosts")

    def iterations(self) -> list[dict[str, str]]:
        log = self.out / "log"
        lines = log.read_text().splitlines() if log.exists() else []
        return [dict(re.findall(r"(\w+) (\S+)", line)) for line in lines]

    def wait(self, until: Callable[[], bool], what: str) -> None:
        deadline = time.monotonic() + STEP_SECONDS
        while not until():
            is_over = self.process.poll() is not None and not until()
            said = f"{what} has not come: {self.printed.read_text()[-6000:]}"
            assert not is_over and time.monotonic() < deadline, said
            time.sleep(0.05)

    def wait_for_size(self, size: int) -> dict[str, int]:
        """Waits for three further iterations of so many ranks; returns the pid of each host."""
        begun = len(self.iterations())

        def found() -> list[dict[str, str]]:
            return [entry for entry in self.iterations()[begun:] if int(entry["size"]) == size]

        self.wait(lambda: len(found()) >= 3 * size, f"a job of {size} ranks")
        assert all(int(entry["chunks"]) > 0 for entry in found()[-size:]), found()
        return {entry["host"]: int(entry["pid"]) for entry in found()}

    def wait_for_line(self, line: str, times: int = 1) -> None:
        self.wait(lambda: self.printed.read_text().count(line) >= times, line)

    def end_fit(self, number: int) -> None:
        (self.out / f"enough.{number}").touch()

    def end(self) -> str:
        """Lets the ranks end their last fit, and returns what they have printed."""
        self.end_fit(self.fits - 1)
        self.wait(lambda: self.process.poll() is not None, "the end")
        printed = self.printed.read_text()
        assert self.process.returncode == 0, printed[-6000:]
        return printed

    def stop(self) -> None:
        if self.process.poll() is None:
            finish(self.process, 0.1)


@pytest.mark.timeout(300)
def test_hosts_leave_come_back_and_fail(tmp_path: Path) -> None:
    options = ["--hosts", str(tmp_path / "hosts"), "--min-np", "1", "--max-np", "2"]
    options += ["--cooldown", "1", "3", "--network-interface", "lo"]
    fit = Fit(tmp_path, (FIRST, SECOND), "elastic", "-np", "2", *options)
    try:
        before = fit.wait_for_size(2)
        os.kill(before[SECOND], signal.SIGTERM)
        assert fit.wait_for_size(1) == {FIRST: before[FIRST]}
        fit.list(FIRST)
        fit.wait_for_line(f"{SECOND}, which was withdrawn, is no longer listed: it may come back.")
        fit.list(FIRST, SECOND)
        back = fit.wait_for_size(2)
        assert back[FIRST] == before[FIRST] and back[SECOND] != before[SECOND]
        os.kill(back[FIRST], signal.SIGKILL)  # rank 0, which the other one joined
        assert fit.wait_for_size(1) == {SECOND: back[SECOND]}
        again = fit.wait_for_size(2)
        assert again[SECOND] == back[SECOND] and again[FIRST] != back[FIRST]
        printed = fit.end()
    finally:
        fit.stop()
    check_lines(printed)
    check_models(tmp_path, size=2)


@pytest.mark.timeout(300)
@pytest.mark.parametrize("moment", ["before", "amid"])
def test_a_host_comes_before_or_amid_the_second_fit(tmp_path: Path, moment: str) -> None:
    options = ["--hosts", str(tmp_path / "hosts"), "--min-np", "1", "--max-np", "2"]
    options += ["--network-interface", "lo"]
    fit = Fit(tmp_path, (FIRST,), "elastic", "-np", "1", *options, fits=2)
    try:
        first = fit.wait_for_size(1)
        fit.end_fit(0)
        if moment == "before":
            fit.wait((tmp_path / "ended.0").exists, "the end of the first fit")
            fit.list(FIRST, SECOND)
            fit.wait_for_line(f"trepak elastic: {SECOND} joins (1 slot).")
            # In which Horovod tells the ranks, which are in no fit and print nothing of it. The end
            # is the same if it takes longer.
            time.sleep(2)
        (tmp_path / "begin.1").touch()
        fit.wait(lambda: fit.iterations()[-1]["fit"] == "1", "the second fit")
        fit.list(FIRST, SECOND)
        both = fit.wait_for_size(2)
        assert both[FIRST] == first[FIRST]
        printed = fit.end()
    finally:
        fit.stop()
    worked = {one["fit"] for one in fit.iterations() if int(one["pid"]) == both[SECOND]}
    assert worked == {"1"}
    one, other = check_models(tmp_path, size=2, fits=2)
    assert one == other  # to the bit
    takes = "trepak: rank 1 comes to training 1 of the script, and the others are at training 2: "
    assert printed.count(takes) == 1, printed[-6000:]


@pytest.mark.soak
@pytest.mark.timeout(600)
@pytest.mark.parametrize("seed", range(50))
def test_any_events(tmp_path: Path, seed: int) -> None:
    """Four events of a random kind, each to a random host, after a random time."""
    rng, notices = random.Random(seed), collections.Counter[str]()
    options = ["--hosts", str(tmp_path / "hosts"), "--min-np", "1", "--max-np", "2"]
    options += ["--cooldown", "1", "2", "--network-interface", "lo"]
    fit = Fit(tmp_path, (FIRST, SECOND), "elastic", "-np", "2", *options)
    try:
        for _ in range(4):
            pids = fit.wait_for_size(2)
            time.sleep(rng.uniform(0, 1))  # no time that anything needs: the event's moment
            host, event = rng.choice((FIRST, SECOND)), rng.choice(("notice", "unlisted", "kill"))
            if event == "unlisted":
                fit.list(*{FIRST, SECOND} - {host})
            else:
                os.kill(pids[host], signal.SIGTERM if event == "notice" else signal.SIGKILL)
            left = fit.wait_for_size(1)
            assert left.keys() == {FIRST, SECOND} - {host}
            if event == "notice":
                notices[host] += 1
                fit.list(*left)
                unlisted = f"{host}, which was withdrawn, is no longer listed"
                fit.wait_for_line(unlisted, notices[host])
            fit.list(FIRST, SECOND)
        fit.wait_for_size(2)
        fit.end()
    finally:
        fit.stop()
    check_models(tmp_path, size=2)


@needs_lab
@pytest.mark.timeout(300)
def test_hosts_leave_in_a_lab(tmp_path: Path) -> None:
    lab, _ = state.up(f"glm{os.getpid() % 10000}", hosts=2, rate=10**9, priorities=2)
    try:
        options = f"--hosts {tmp_path / 'hosts'} --min-np 1"
        fit = Fit(tmp_path, ("w0", "w1"), "lab", "run", "--name", lab.name, f"--elastic={options}")
        try:
            pids = fit.wait_for_size(2)
            places = network.processes(lab)
            assert {host: places[pid] for host, pid in pids.items()} == {"w0": "w0", "w1": "w1"}
            fit.list("w0")
            assert fit.wait_for_size(1) == {"w0": pids["w0"]}
            printed = fit.end()
        finally:
            fit.stop()
        assert network.processes(lab) == {}
    finally:
        state.down(lab.name)
    assert re.search(r"rank [01] is to leave \(w1 is no longer listed\): its [1-9]\d* ", printed)
    check_models(tmp_path, size=1)


def check_models(out: Path, size: int, fits: int = 1) -> list[list[dict[str, Any]]]:
    """Checks that all ranks have fitted what one process fits alone, to the tolerance.

    Returns:
        By rank, what it has fitted.
    """
    done = [json.loads(path.read_text()) for path in out.glob("done.*")]
    assert sorted(one["rank"] for one in done) == [*range(size)], done
    for number in range(fits):
        c = elastic_glm.cost(number)
        alone = elastic_glm.fit(*elastic_glm.samples(), c=c).coef_[0]
        best = elastic_glm.objective(alone, c)
        for fitted in (one["fits"][number] for one in done):
            assert 0 <= fitted["gap"] <= elastic_glm.TOL, done
            # Both are less than that above the optimum.
            assert fitted["objective"] == pytest.approx(best, rel=2 * elastic_glm.TOL), (done, best)
    return [one["fits"] for one in sorted(done, key=lambda one: one["rank"])]


def check_lines(printed: str) -> None:
    """Checks that each event has its line, once; the ranks' and the launcher's, in their order."""
    joined = r"has joined as rank 1 of 2, and has [1-9]\d* chunks of the others now\."
    ranks = [
        rf"trepak: rank [01] is to leave \(SIGTERM on {SECOND}\): its [1-9]\d* chunks go to the .*",
        rf"trepak: iteration \d+: {SECOND} has left; 1 rank goes on\.",
        rf"trepak: iteration \d+: {SECOND} {joined}",
        rf"trepak: {FIRST} was lost in iteration \d+: 1 rank goes on from iteration \d+; "
        r"(\d+ chunks were read again and )?[1-9]\d* chunks were taken from copies\.",
        rf"trepak: iteration \d+: {FIRST} {joined}",
    ]
    launchers = [
        rf"trepak elastic: {SECOND} is withdrawn: its ranks leave at the next commit\.",
        rf"trepak elastic: {SECOND}, which was withdrawn, is no longer listed: it may come back\.",
    ]
    lines = printed.splitlines()
    for events in (ranks, launchers):
        found = [[n for n, line in enumerate(lines) if re.search(one, line)] for one in events]
        assert all(len(some) == 1 for some in found), (found, printed[-6000:])
        assert found == sorted(found), printed[-6000:]
    joins = [f"trepak elastic: {host} joins (1 slot)." for host in (FIRST, SECOND)]
    assert [lines.count(line) for line in joins] == [1, 2], printed[-6000:]

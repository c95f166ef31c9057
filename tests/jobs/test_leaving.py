"""Jobs of `trepak elastic` whose hosts get notice: their ranks leave, and nothing fails."""

from __future__ import annotations

import os
import re
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from conftest import WORKERS, finish, start
from test_elastic import epochs_seen, wait_for_epoch
from test_elastic_chunks import wait_for_line

# Names of this machine, which stand for hosts: Horovod would reach others by ssh.
FIRST, SECOND, THIRD = "localhost", "127.0.0.1", "127.1"
END_SECONDS = 60


class Leaving:
    """A job of `trepak elastic`, and the file that lists its hosts."""

    def __init__(
        self, out: Path, hosts: dict[str, int], least: int, cooldown: tuple[int, int] = (30, 300)
    ) -> None:
        self.out = out
        self.list(hosts)
        command = [str(Path(sys.executable).parent / "trepak"), "elastic"]
        command += ["-np", str(sum(hosts.values())), "--min-np", str(least), "--max-np", "3"]
        command += ["--cooldown", *map(str, cooldown)]
        command += ["--hosts", str(out / "hosts"), "--network-interface", "lo"]
        command += ["--horovodrun=--log-level INFO"]  # the driver then tells what it blacklists
        command += ["--", sys.executable, str(WORKERS / "elastic_fit.py")]
        # Ranks end long before all epochs, when the test has seen `enough`.
        with (out / "printed").open("w") as printed:
            self.process = start(command, out, env={"EPOCHS": "500"}, stdout=printed)

    def list(self, hosts: dict[str, int]) -> None:
        new = self.out / "hosts.new"
        new.write_text("".join(f"{host}:{slots}\n" for host, slots in hosts.items()))
        new.replace(self.out / "hosts")

    def epoch(self) -> int:
        """Returns the last epoch that was trained."""
        return max(int(entry["epoch"]) for entry in epochs_seen(self.out))

    def wait_for_size(self, size: int, after: int) -> dict[str, int]:
        """Waits for an epoch of so many ranks, after one; returns a pid for each host."""
        seen = wait_for_epoch(self.out, after + 1, size)
        return {entry["host"]: int(entry["pid"]) for entry in seen}

    def end(self, seconds: float) -> tuple[int, str]:
        """Waits for the end; returns the exit code, and what was printed."""
        code, _ = finish(self.process, seconds)
        return code, (self.out / "printed").read_text()

    def check_end(self, size: int, failures: int = 0) -> str:
        """Ends the training in a few epochs, checks that all is well, and returns the output."""
        (self.out / "enough").write_text(str(self.epoch() + 5))
        code, output = self.end(END_SECONDS)
        assert code == 0, output[-6000:]
        done = [path.read_text().split() for path in self.out.glob("done.*")]
        assert [int(count) for _, count, _ in done] == [size] * size, done
        assert output.count("blacklist failing host") == failures, output[-6000:]
        assert output.count("exit with status code") == failures, output[-6000:]
        weights: dict[tuple[str, str], set[str]] = {}
        for entry in epochs_seen(self.out):
            weights.setdefault((entry["epoch"], entry["size"]), set()).add(entry["weights"])
        assert all(len(found) == 1 for found in weights.values()), weights
        return output


@pytest.fixture
def jobs(tmp_path: Path) -> Iterator[list[Leaving]]:
    begun: list[Leaving] = []
    yield begun
    for job in begun:
        if job.process.poll() is None:  # the test has failed: show what the job printed
            print(job.end(0.1)[1][-6000:])


def wait_until_gone(pid: int, seconds: float) -> None:
    deadline = time.monotonic() + seconds
    while psutil.pid_exists(pid) and psutil.Process(pid).status() != psutil.STATUS_ZOMBIE:
        assert time.monotonic() < deadline, f"process {pid} still runs after {seconds} s"
        time.sleep(0.1)


@pytest.mark.timeout(280)
def test_a_host_with_sigterm_leaves_and_comes_back(tmp_path: Path, jobs: list[Leaving]) -> None:
    hosts = {FIRST: 1, SECOND: 1}
    job = Leaving(tmp_path, hosts, least=1)
    jobs.append(job)
    pids = job.wait_for_size(2, after=0)
    os.kill(pids[SECOND], signal.SIGTERM)
    before = job.epoch()
    job.wait_for_size(1, after=before)
    wait_until_gone(pids[SECOND], 20)
    job.list({FIRST: 1})
    wait_for_line(tmp_path, f"{SECOND}, which was withdrawn, is no longer listed")
    job.list(hosts)
    after = job.wait_for_size(2, after=job.epoch())
    assert after[FIRST] == pids[FIRST] and after[SECOND] != pids[SECOND]
    output = job.check_end(size=2)
    for line in (
        f"trepak elastic: {SECOND} joins (1 slot).",
        f"trepak elastic: {SECOND} is withdrawn: its ranks leave at the next commit.",
        f"trepak: {SECOND}, rank ",
        f"trepak elastic: {SECOND}, which was withdrawn, is no longer listed: it may come back.",
    ):
        assert line in output, output[-6000:]
    assert output.count(f"{SECOND} joins") == 2, output[-6000:]


@pytest.mark.timeout(200)
def test_all_ranks_of_a_host_leave_with_the_one_that_calls_leave(
    tmp_path: Path, jobs: list[Leaving]
) -> None:
    """Of the ranks of rank 0's host, only one has notice; the other host has to take over."""
    job = Leaving(tmp_path, {FIRST: 2, SECOND: 1}, least=1)
    jobs.append(job)
    job.wait_for_size(3, after=0)
    (tmp_path / f"leave.{FIRST}").touch()
    assert [*job.wait_for_size(1, after=job.epoch())] == [SECOND]
    output = job.check_end(size=1)
    left = re.findall(rf"trepak: {FIRST}, rank \d, has left the job", output)
    assert len(left) == len({*left}) == 2, output[-6000:]


@pytest.mark.timeout(280)
def test_a_host_that_is_needed_stays_until_another_one_comes(
    tmp_path: Path, jobs: list[Leaving]
) -> None:
    job = Leaving(tmp_path, {FIRST: 1, SECOND: 1}, least=2)
    jobs.append(job)
    pids = job.wait_for_size(2, after=0)
    os.kill(pids[SECOND], signal.SIGTERM)
    assert job.wait_for_size(2, after=job.epoch() + 3) == pids
    job.list({FIRST: 1, SECOND: 1, THIRD: 1})
    wait_until_gone(pids[SECOND], 90)
    assert {*job.wait_for_size(2, after=job.epoch())} == {FIRST, THIRD}
    output = job.check_end(size=2)
    stays = f"{SECOND} has notice, but stays: without it there are slots for 1, and --min-np is 2."
    lines = [stays, f"{THIRD} joins (1 slot).", f"{SECOND} is withdrawn: its ranks leave"]
    places = [output.find(line) for line in lines]
    assert -1 < places[0] < places[1] < places[2], output[-6000:]


@pytest.mark.timeout(280)
def test_a_host_whose_rank_died_is_tried_again(tmp_path: Path, jobs: list[Leaving]) -> None:
    job = Leaving(tmp_path, {FIRST: 1, SECOND: 1}, least=1, cooldown=(1, 3))
    jobs.append(job)
    pids = job.wait_for_size(2, after=0)
    os.kill(pids[SECOND], signal.SIGKILL)
    before = job.epoch()
    wait_until_gone(pids[SECOND], 10)
    after = job.wait_for_size(2, after=before + 1)
    assert after[FIRST] == pids[FIRST] and after[SECOND] != pids[SECOND]
    job.check_end(size=2, failures=1)


@pytest.mark.timeout(200)
@pytest.mark.parametrize("stopped", ["all ranks", "launcher, by SIGTERM", "launcher, by ^C"])
def test_a_job_that_is_stopped_ends_at_once(
    tmp_path: Path, jobs: list[Leaving], stopped: str
) -> None:
    job = Leaving(tmp_path, {FIRST: 1, SECOND: 1}, least=2)
    jobs.append(job)
    pids = job.wait_for_size(2, after=0)
    if stopped == "all ranks":
        for pid in pids.values():
            os.kill(pid, signal.SIGTERM)
    else:
        job.process.send_signal(signal.SIGINT if "^C" in stopped else signal.SIGTERM)
    code, output = job.end(20)
    expected = {"all ranks": 1, "launcher, by SIGTERM": 143, "launcher, by ^C": 130}
    assert code == expected[stopped], output[-6000:]
    for pid in pids.values():
        wait_until_gone(pid, 5)
    assert "all hosts have notice: the job ends" in output, output[-6000:]
    assert not [*tmp_path.glob("done.*")]

"""A ChunkedDataset in an elastic job: each sample once in a pass, whoever comes, leaves or dies."""

from __future__ import annotations

import collections
import json
import os
import re
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from conftest import WORKERS, finish, start

EPOCHS, SAMPLES = 14, 480
HOSTS = ("localhost", "127.0.0.1")  # names of this machine: Horovod would reach others by ssh
SECONDS = 100


def launch(out: Path) -> Any:
    """Starts a job on two hosts; what it prints goes to a file."""
    list_hosts(out, *HOSTS)
    command = [sys.executable, "-m", "trepak.scripts.cli", "elastic", "-np", "2", "--min-np", "1"]
    command += [
        "--hosts",
        str(out / "hosts"),
        "--cooldown",
        "1",
        "2",
        "--network-interface",
        "lo",
        "--",
    ]
    command += [sys.executable, str(WORKERS / "elastic_chunks.py")]
    with (out / "printed").open("w") as printed:
        return start(command, out, env={"EPOCHS": str(EPOCHS)}, stdout=printed)


def list_hosts(out: Path, *hosts: str) -> None:
    new = out / "hosts.new"
    new.write_text("".join(f"{host}:1\n" for host in hosts))
    new.replace(out / "hosts")


def wait_for_line(out: Path, line: str) -> None:
    deadline = time.monotonic() + SECONDS
    while line not in (out / "printed").read_text():
        assert time.monotonic() < deadline, f"{line!r} was not printed"
        time.sleep(0.1)


def lines(path: Path) -> list[list[Any]]:
    """Returns the whole lines of a file that is being written."""
    text = path.read_text() if path.exists() else ""
    return [json.loads(line) for line in text[: text.rfind("\n") + 1].splitlines()]


def wait(out: Path, what: str, found: Callable[[list[list[Any]]], Any]) -> Any:
    """Waits until a round of ranks is as wanted, and has trained a little."""
    deadline = time.monotonic() + SECONDS
    while time.monotonic() < deadline:
        rolls = lines(out / "rolls")
        got = found(rolls)
        steps = lines(out / "log")
        if got and any(step[0] == rolls[-1][0] and step[1] > step[0] + 3 for step in steps):
            return got
        time.sleep(0.1)
    raise AssertionError(f"{what} did not come: {lines(out / 'rolls')}")


def two_after(fits: int) -> Callable[[list[list[Any]]], Any]:
    """Finds the ranks of a round of two, by rank their pid and host, after so many rounds."""

    def found(rolls: list[list[Any]]) -> dict[int, tuple[int, str]] | None:
        rounds = sorted({roll[0] for roll in rolls})
        now = {r[2]: (r[4], r[5]) for r in rolls if r[0] == rounds[-1] and r[3] == 2}
        return now if len(rounds) > fits and len(now) == 2 else None

    return found


@pytest.mark.timeout(6 * SECONDS)
def test_samples_come_once_in_a_pass_while_ranks_leave_join_and_die(tmp_path: Path) -> None:
    process = launch(tmp_path)
    try:
        ranks = wait(tmp_path, "two ranks", two_after(0))
        os.kill(ranks[1][0], signal.SIGTERM)
        wait(tmp_path, "one rank", lambda rolls: rolls and rolls[-1][3] == 1)
        list_hosts(tmp_path, *{*HOSTS} - {ranks[1][1]})
        wait_for_line(tmp_path, "which was withdrawn, is no longer listed")
        list_hosts(tmp_path, *HOSTS)
        ranks = wait(tmp_path, "its host again", two_after(2))
        os.kill(ranks[0][0], signal.SIGKILL)
        wait(tmp_path, "the killed rank's host again", two_after(4))
    finally:
        code, _ = finish(process, SECONDS)
        output = (tmp_path / "printed").read_text()
    assert code == 0, output[-6000:]
    check_ends(tmp_path, output)
    check_passes(tmp_path)


def check_ends(out: Path, output: str) -> None:
    ends = [json.loads(path.read_text()) for path in out.glob("done.*")]
    assert len(ends) == 2 and ends[0]["weights"] == ends[1]["weights"], ends
    losses = ends[0]["losses"]
    assert len(losses) == EPOCHS and losses[-1] < 0.5 * losses[0], losses
    for event in (
        r"rank 1 is to leave \(SIGTERM on \S+\): its \d+ chunks go to the others\.",
        r"trepak: \S+, rank 1, has left the job\.",
        r"iteration \d+: \S+ has left; 1 rank goes on\.",
        r"iteration \d+: \S+ has joined as rank 1 of 2, and has \d+ chunks of the others now\.",
        r"\S+ was lost in iteration \d+: 1 rank goes on from iteration \d+; \d+ chunks were read "
        r"again\.",
    ):
        assert re.search(event, output), f"{event}\n{output[-6000:]}"


def check_passes(out: Path) -> None:
    """Counts what the training that was gone on with has trained on, in each pass."""
    starts = sorted({roll[0] for roll in lines(out / "rolls")})
    following = dict(zip(starts, starts[1:], strict=False))
    passes: dict[int, collections.Counter[int]] = collections.defaultdict(collections.Counter)
    for fit, iteration, epoch, *_, rows in lines(out / "log"):
        if iteration < following.get(fit, sys.maxsize):  # else all went back to before it
            passes[epoch].update(rows)
    assert sorted(passes) == list(range(EPOCHS))
    for epoch, counts in passes.items():
        assert set(counts) == set(range(SAMPLES)), f"epoch {epoch} has left samples out"
        again = sum(counts.values()) - SAMPLES
        assert again <= 8, f"epoch {epoch}: {again} samples came more than once"
    assert sum(sum(counts.values()) for counts in passes.values()) <= EPOCHS * SAMPLES + 16

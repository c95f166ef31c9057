"""A rank that is killed: the job ends soon, and says who died."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psutil
import pytest
from conftest import WORKERS, finish, horovodrun, run_job, start, wait_for

LIMIT = 10.0  # seconds from the kill until survivors know who it was
# Until no rank runs under Horovod's launcher. Survivors that know still have to end their
# interpreters, which a machine without a free processor can make take seconds. The launcher asks
# them to, waits 5 s, kills them, and waits as long again.
ENDED = LIMIT + 2 * 5.0
# For `make soak`: what they add to the others, native tests show on a network of their own.
LONGER = pytest.mark.soak


def kill_one(
    tmp_path: Path,
    gloo: bool,
    loop: str,
    rank: int,
    signal_: int = signal.SIGKILL,
    env: dict[str, str] | None = None,
) -> tuple[int, str, float, float]:
    """Kills a rank in training; returns exit code, output, seconds until no rank runs, and when.

    Horovod's launcher may end up to 10 seconds later: it waits for processes that are gone.
    """
    command = [*horovodrun(3, gloo), sys.executable, str(WORKERS / "victim.py"), *loop.split()]
    process = start(command, tmp_path, env)
    try:
        wait_for([tmp_path / f"pid.{r}" for r in range(3)])
    except AssertionError as error:
        os.killpg(process.pid, signal.SIGKILL)
        raise AssertionError(finish(process, 10)[1][-3000:]) from error
    ranks = [psutil.Process(int((tmp_path / f"pid.{r}").read_text())) for r in range(3)]
    victim = ranks[rank].pid
    os.kill(victim, signal_)
    killed, wall = time.monotonic(), time.time()
    if signal_ != signal.SIGKILL:
        wait_for([tmp_path / f"{r}.json" for r in range(3) if r != rank])
        os.kill(victim, signal.SIGKILL)
    with ThreadPoolExecutor() as threads:
        end = threads.submit(finish, process, 60)
        psutil.wait_procs(ranks, 60)
        seconds = time.monotonic() - killed
        return *end.result(), seconds, wall


def nothing_is_left(tmp_path: Path) -> None:
    for path in tmp_path.glob("pid.*"):
        deadline = time.monotonic() + 10
        while Path(f"/proc/{path.read_text()}").exists():
            assert time.monotonic() < deadline, f"{path.name} is still running"
            time.sleep(0.1)


@pytest.mark.parametrize(
    ("loop", "rank"),
    [
        ("fit", 0),
        pytest.param("fit", 2, marks=LONGER),
        pytest.param("fit lanes overlap", 1, marks=LONGER),
    ],
)
def test_mpi_ends_the_job_and_names_the_rank(tmp_path: Path, loop: str, rank: int) -> None:
    code, output, seconds, _ = kill_one(tmp_path, gloo=False, loop=loop, rank=rank)
    assert code != 0
    assert seconds < LIMIT, f"{seconds:.1f} s\n{output[-3000:]}"
    assert re.search(rf"process rank {rank} .*signal 9", output), output[-3000:]
    nothing_is_left(tmp_path)


@pytest.mark.parametrize(
    ("loop", "rank"),
    [
        ("fit", 0),
        ("compiled_loop", 2),
        pytest.param("fit", 1, marks=LONGER),
        pytest.param("eager_loop", 1, marks=LONGER),
        ("fit lanes overlap", 1),
    ],
)
def test_gloo_survivors_name_the_killed_rank(tmp_path: Path, loop: str, rank: int) -> None:
    """They raise HorovodInternalError, which says who is gone, and of nobody else that he is."""
    code, output, seconds, killed_at = kill_one(tmp_path, gloo=True, loop=loop, rank=rank)
    assert code != 0
    assert seconds < ENDED, f"{seconds:.1f} s\n{output[-3000:]}"
    assert re.search(rf"Process name: {rank}\s+Exit code: 137", output), output[-3000:]
    victim = f"Rank {rank} (pid {(tmp_path / f'pid.{rank}').read_text()} on "
    for survivor in {0, 1, 2} - {rank}:
        caught = json.loads((tmp_path / f"{survivor}.json").read_text())["caught"]
        assert caught, output[-3000:]
        assert caught["time"] - killed_at < LIMIT
        assert f"rank {survivor}: a collective failed" in caught["error"], caught
        assert f"{victim}{socket.gethostname()}) is gone" in caught["error"], caught
        assert "trepak.elastic" in caught["error"]
    nothing_is_left(tmp_path)


def check_survivors_of_flows(tmp_path: Path, killed_at: float, limit: float, rank: int = 1) -> None:
    """All raised HorovodInternalError, and know which rank it was."""
    for survivor in {0, 1, 2} - {rank}:
        caught = json.loads((tmp_path / f"{survivor}.json").read_text())["caught"]
        assert caught
        assert caught["time"] - killed_at < limit
        error = caught["error"].lower()  # it begins a sentence where Horovod was the first to know
        assert f"rank {survivor}" in error and f"rank {rank}" in error, caught["error"]


@pytest.mark.parametrize(
    ("loop", "rank"),
    [
        *(("fit geryon overlap", 1), ("fit pipeline", 1), ("fit fela", 1), ("fit fela", 0)),
        *(("fit fela ahead", 1), ("fit fela ahead", 0)),
    ],
)
def test_flows_name_the_killed_rank(tmp_path: Path, loop: str, rank: int) -> None:
    """Worker and server at once: with Geryon every rank is both, with Fela rank 0."""
    code, output, seconds, killed_at = kill_one(tmp_path, gloo=True, loop=loop, rank=rank)
    assert code != 0
    assert seconds < ENDED, f"{seconds:.1f} s\n{output[-3000:]}"
    check_survivors_of_flows(tmp_path, killed_at, LIMIT, rank)
    nothing_is_left(tmp_path)


@pytest.mark.parametrize("loop", ["fit geryon overlap", "fit fela", "fit fela ahead"])
def test_flows_name_the_rank_that_stands_still(tmp_path: Path, loop: str) -> None:
    """No wait without a deadline: here 4 seconds."""
    code, _, _, stopped_at = kill_one(
        tmp_path, True, loop, 1, signal.SIGSTOP, {"TREPAK_DEADLINE_SECONDS": "4"}
    )
    assert code != 0
    check_survivors_of_flows(tmp_path, stopped_at, 4 + LIMIT)
    nothing_is_left(tmp_path)


@pytest.mark.parametrize("gloo", [False, pytest.param(True, marks=LONGER)], ids=["mpi", "gloo"])
def test_lanes_name_the_rank_that_stands_still(tmp_path: Path, gloo: bool) -> None:
    """Horovod's stall inspector knows who is missing: its deadline is 4 seconds here.

    It looks every 2 seconds, and first forgets that the ranks had agreed on the collective before.
    """
    env = {"TREPAK_STALL_SECONDS": "4"}
    code, output, _, stopped_at = kill_one(
        tmp_path, gloo, "fit lanes overlap", 1, signal.SIGUSR1, env
    )
    assert code != 0
    assert re.search(r"Missing ranks:.*\s+\S*1!?: \[trepak_lane_", output), output[-3000:]
    for survivor in (0, 2):
        caught = json.loads((tmp_path / f"{survivor}.json").read_text())["caught"]
        print(f"rank {survivor} learns of it after {caught['time'] - stopped_at:.1f} s")
        assert caught["time"] - stopped_at < 4 + LIMIT
        assert f"rank {survivor}: a collective failed" in caught["error"], caught
    nothing_is_left(tmp_path)


@pytest.mark.parametrize("gloo", [pytest.param(False, marks=LONGER), True], ids=["mpi", "gloo"])
def test_a_collective_that_one_rank_never_enters_fails(tmp_path: Path, gloo: bool) -> None:
    """No wait without a deadline: here 4 seconds, where a rank stays away for 12."""
    env = {"TREPAK_STALL_SECONDS": "4"}
    outcome = run_job(["stall.py"], tmp_path, gloo=gloo, env=env, seconds=90)
    for rank in (0, 1):
        result = outcome.ranks[rank].get("stall")
        assert result and result["ok"], outcome.output[-3000:]
    assert outcome.ranks[0]["stall"]["value"] < 11, outcome.ranks


@pytest.mark.parametrize("gloo", [pytest.param(False, marks=LONGER), True], ids=["mpi", "gloo"])
def test_sums_of_a_failed_iteration_meet_no_others(tmp_path: Path, gloo: bool) -> None:
    """Fela: ranks that can't go on are told what to do, and it works."""
    outcome = run_job(["fela_stuck.py"], tmp_path, gloo=gloo, seconds=120)
    told = [rank.get("told") for rank in outcome.ranks]
    assert all(told), outcome.output[-3000:]
    assert told[0][0] == told[1][0] == ""
    assert "no disk" in told[1][1] and "rank 1" in told[0][1], told
    for rank in told:
        assert "while ranks [0] summed gradients" in rank[2], told
    assert told[0][3] == told[1][3]


@pytest.mark.timeout(300)
@pytest.mark.parametrize("code", [0, 3])
def test_mpi_learns_at_once_how_a_rank_has_ended(tmp_path: Path, code: int) -> None:
    """Rank 0 has more to do: 3 seconds of it, or minutes that nobody waits for if one failed."""
    ended = run_job(["leaver.py", str(code)], tmp_path, seconds=120)
    assert ended.code != 124 and (ended.code == 0) == (code == 0), ended.output[-3000:]
    assert ("rank 0 is done" in ended.output) == (code == 0), ended.output[-3000:]
    if code:
        blamed = re.search(r"Process name: .*,1\]\s+Exit code: +3", ended.output)
        assert blamed, ended.output[-3000:]

"""A rank that dies while ranks go at their own pace: the others fail soon, and say who it was."""

from __future__ import annotations

import json
import signal
from pathlib import Path

import pytest
from test_failures import ENDED, LIMIT, LONGER, check_survivors_of_flows, kill_one, nothing_is_left

# Where the victim is when it is killed, nearly always.
MOMENTS = {
    "quorum": "between a probe and its answer: it computes, and a round needs its gradients",
    "rounds": "in a round: they are large, and one follows the other",
    "groups": "in a push of parameters to the servers, or in the pull: every round has one",
    "pairs": "in an averaging of two replicas",
    "superstep": "in a superstep of ElasticBSP: it computes, or pushes a change",
    "barrier": "while the others wait for it at a barrier of ElasticBSP",
    "waiting": "waiting for another one at a barrier of ElasticBSP",
}


# Rank 0 has the coordinator, of the job or of its group, and begins each group's exchange.
KILLED = [
    ("rounds", 0),
    ("groups", 1),
    ("pairs", 1),
    ("superstep", 1),
    ("waiting", 0),
    pytest.param("quorum", 1, marks=LONGER),
    pytest.param("rounds", 1, marks=LONGER),
    pytest.param("barrier", 1, marks=LONGER),
    pytest.param("waiting", 1, marks=LONGER),
    pytest.param("superstep", 0, marks=LONGER),
    pytest.param("groups", 0, marks=LONGER),
]


@pytest.mark.timeout(120)
@pytest.mark.parametrize(("way", "rank"), KILLED)
def test_survivors_name_the_killed_rank(tmp_path: Path, way: str, rank: int) -> None:
    code, output, seconds, killed_at = kill_one(tmp_path, gloo=True, loop=f"fit {way}", rank=rank)
    assert code != 0
    assert seconds < ENDED, f"{seconds:.1f} s\n{output[-3000:]}"
    check_survivors_of_flows(tmp_path, killed_at, LIMIT, rank)
    nothing_is_left(tmp_path)


@LONGER
@pytest.mark.timeout(120)
@pytest.mark.parametrize("way", ["quorum", "groups", "superstep", "barrier"])
def test_mpi_ends_the_job(tmp_path: Path, way: str) -> None:
    code, output, seconds, _ = kill_one(tmp_path, gloo=False, loop=f"fit {way}", rank=1)
    assert code != 0
    assert seconds < LIMIT, f"{seconds:.1f} s\n{output[-3000:]}"
    assert "process rank 1" in output, output[-3000:]
    nothing_is_left(tmp_path)


@pytest.mark.timeout(120)
@pytest.mark.parametrize(
    "way",
    [
        pytest.param("quorum", marks=LONGER),
        "rounds",
        pytest.param("groups", marks=LONGER),
        pytest.param("pairs", marks=LONGER),
        "superstep",
        pytest.param("barrier", marks=LONGER),
        pytest.param("waiting", marks=LONGER),
    ],
)
def test_a_rank_that_stands_still_is_named(tmp_path: Path, way: str) -> None:
    """No wait without a deadline: here 4 seconds."""
    env = {"TREPAK_DEADLINE_SECONDS": "4"}
    code, _, _, stopped_at = kill_one(tmp_path, True, f"fit {way}", 1, signal.SIGSTOP, env)
    assert code != 0
    check_survivors_of_flows(tmp_path, stopped_at, 4 + LIMIT)
    nothing_is_left(tmp_path)


@pytest.mark.timeout(120)
def test_a_rank_that_hangs_is_named_by_the_next_flush(tmp_path: Path) -> None:
    """Its process lives, and its connections do: rounds go on until all are to flush."""
    env = {"TREPAK_DEADLINE_SECONDS": "4"}
    code, _, _, hangs_since = kill_one(tmp_path, True, "fit short rounds", 1, signal.SIGUSR1, env)
    assert code != 0
    epoch = 30.0  # seconds until its end, at most
    check_survivors_of_flows(tmp_path, hangs_since, epoch + 4 + LIMIT)
    caught = json.loads((tmp_path / "0.json").read_text())["caught"]
    assert "to come to the end of an epoch" in caught["error"]
    nothing_is_left(tmp_path)

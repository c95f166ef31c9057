"""Who is gone, as seen by processes that a launcher's store has told of each other."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from typing import Any

import pytest
from horovod.runner.http.http_server import RendezvousServer
from undisturbed import undisturbed

# A rank: imports the module alone, without TensorFlow; then does what it is told, line by line.
RANK = """
import sys
from trepak.scripts.light_import import light_import
liveness = light_import("trepak.horovod_ext.liveness")
for line in sys.stdin:
    command, *arguments = line.split()
    if command == "announce":
        liveness.announce(*map(int, arguments), is_one_host=True)
        print(len(liveness._state.peers), flush=True)
    elif command == "gone":
        print(liveness.gone(), flush=True)
    elif command == "takes":
        try:
            liveness._state.listener.accept()
            print("one", flush=True)
        except BlockingIOError:
            print("none", flush=True)
    elif command == "exit":
        sys.exit(int(arguments[0]))
"""


class Rank:
    def __init__(self, environment: dict[str, str]) -> None:
        pipes: Any = dict(stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        command = [sys.executable, "-c", RANK]
        self.process = subprocess.Popen(command, env=os.environ | environment, **pipes)

    def tell(self, line: str) -> None:
        assert self.process.stdin
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()

    def answer(self) -> str:
        assert self.process.stdout
        return self.process.stdout.readline().strip()

    def ask(self, line: str) -> str:
        self.tell(line)
        return self.answer()

    @property
    def pid(self) -> int:
        return self.process.pid

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()


def announce(ranks: list[Rank], first: int | None = None) -> None:
    for number, rank in sorted(enumerate(ranks), key=lambda one: one[0] != first):
        rank.tell(f"announce {number} {len(ranks)}")
        if number == first:
            time.sleep(0.3)
    assert [rank.answer() for rank in ranks] == [str(len(ranks) - 1)] * len(ranks)


@pytest.fixture
def ranks() -> Iterator[list[Rank]]:
    server = RendezvousServer()
    environment = {
        "HOROVOD_GLOO_RENDEZVOUS_ADDR": "127.0.0.1",
        "HOROVOD_GLOO_RENDEZVOUS_PORT": str(server.start()),
    }
    server.init([])
    started = [Rank(environment) for _ in range(4)]
    try:
        announce(started)
        yield started
    finally:
        for rank in started:
            rank.kill()
        server.stop()


def test_every_killed_rank_is_named_and_none_else(ranks: list[Rank]) -> None:
    ranks[1].kill()
    for survivor in (ranks[0], ranks[2]):
        assert survivor.ask("gone").startswith(f"rank 1 (pid {ranks[1].pid} on ")
    ranks[2].kill()  # it has failed because rank 1 was gone
    assert "rank 2" not in ranks[3].ask("gone")
    ranks[0].kill()
    assert ranks[3].ask("gone").endswith(") is gone")


def test_two_at_once(ranks: list[Rank]) -> None:
    for victim in (ranks[0], ranks[2]):
        victim.kill()
    said = ranks[3].ask("gone")
    assert f"rank 0 (pid {ranks[0].pid} on " in said and f"rank 2 (pid {ranks[2].pid} on " in said
    assert "rank 1" not in said and said.endswith(" are gone")


def test_a_rank_that_exits_is_gone(ranks: list[Rank]) -> None:
    ranks[3].ask("exit 1")
    assert ranks[0].ask("gone").startswith(f"rank 3 (pid {ranks[3].pid} on ")


def test_a_rank_that_stands_still_is_not_gone(ranks: list[Rank]) -> None:
    def seconds() -> float:
        began = time.monotonic()
        assert ranks[0].ask("gone") == ""
        return time.monotonic() - began

    ranks[1].process.send_signal(signal.SIGSTOP)
    assert 1 < seconds() < 10  # it gave the others time to end
    assert undisturbed(seconds, lambda took: took < 1.5) < 1.5  # but only once


def test_ranks_are_told_anew_by_every_init(ranks: list[Rank]) -> None:
    """As in an elastic job: rank 1 is gone, and rank 2 has its number."""
    ranks[1].kill()
    assert "rank 1" in ranks[0].ask("gone")
    left = [ranks[0], ranks[2], ranks[3]]
    for first in (0, 1, 2, None):  # who comes first finds what was said before
        announce(left, first)
        assert ranks[0].ask("gone") == ""
    announce(left)
    ranks[3].kill()
    assert ranks[0].ask("gone").startswith(f"rank 2 (pid {ranks[3].pid} on ")


def test_who_was_the_first_rank_has_another_number(ranks: list[Rank]) -> None:
    for first in (0, 1, 2, 3):
        ranks.append(ranks.pop(0))
        announce(ranks, first)
    ranks[2].kill()
    assert ranks[3].ask("gone").startswith(f"rank 2 (pid {ranks[2].pid} on ")


def test_who_has_failed_once_can_be_gone_later(ranks: list[Rank]) -> None:
    """As after shutdown() and init() in the same processes."""
    assert ranks[1].ask("gone") == ""
    announce(ranks)
    ranks[1].kill()
    assert ranks[0].ask("gone").startswith(f"rank 1 (pid {ranks[1].pid} on ")


def test_many_failures_leave_nobody_silent(ranks: list[Rank]) -> None:
    for _ in range(60):
        assert ranks[0].ask("gone") == ""
    assert ranks[1].ask("takes") == "one"
    ranks[1].ask("gone")
    assert ranks[1].ask("takes") == "none"  # it has taken them all
    ranks[0].ask("gone")
    announce(ranks)
    assert ranks[1].ask("takes") == "none"


def test_who_can_not_be_asked_hides_no_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    from trepak.horovod_ext import failures, liveness

    nowhere = liveness.Peer(1, 1, "host", "no such host", 1)
    monkeypatch.setattr(liveness._state, "peers", [nowhere])
    error = failures.LostRankError(None, None, "Horovod has been shut down")
    assert "a collective failed: Horovod has been shut down. If that is no reason" in str(error)

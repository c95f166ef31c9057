"""How a rank with notice leaves: its state, what it asks, and the port that answers."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from horovod.common.exceptions import HostsUpdatedInterrupt
from test_elastic_hosts import Kept

from trepak.horovod_ext import basics, exchange, membership
from trepak.scripts.elastic import server
from trepak.tf_plugins.model import member_state
from trepak.tf_plugins.model.elastic import TensorFlowState, run
from trepak.tf_plugins.model.member_state import MemberState


@pytest.fixture
def served(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[Kept, server.MembershipServer]]:
    """A roster and its port; this process is a rank of the host `a`, which has no notice yet."""
    kept = Kept()
    kept.roster.update({"a": 2, "b": 1})
    port = server.MembershipServer(kept.roster, "127.0.0.1")
    monkeypatch.setattr(membership, "_state", membership._State())
    monkeypatch.setenv("TREPAK_MEMBERSHIP", port.credentials)
    monkeypatch.setenv("HOROVOD_GLOO_RENDEZVOUS_ADDR", "127.0.0.1")
    monkeypatch.setenv("HOROVOD_HOSTNAME", "a")
    yield kept, port
    port.close()


@pytest.fixture
def alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """This process is the only rank, as far as states see."""
    monkeypatch.setattr(exchange, "gather", lambda fact, tag: [fact])
    monkeypatch.setattr(basics, "rank", lambda: 0)


def sent(port: server.MembershipServer, data: bytes) -> bytes:
    """Returns what the port answers; b"" where it closes the connection."""
    number = int(port.credentials.partition(":")[0])
    with socket.create_connection(("127.0.0.1", number), 5) as way:
        way.settimeout(10)
        try:
            way.sendall(data)
            way.shutdown(socket.SHUT_WR)
            return way.recv(1 << 16)
        except TimeoutError:
            raise
        except OSError:  # it was closed before all was sent
            return b""


def request(port: server.MembershipServer, *parts: Any) -> Any:
    token = port.credentials.partition(":")[2]
    return json.loads(sent(port, json.dumps([token, *parts]).encode() + b"\n"))


def test_a_rank_asks_the_launcher(served: Any) -> None:
    kept, _ = served
    assert membership.expected_hosts() == {"a": 2, "b": 1}
    assert not membership.is_left_out() and membership.answer() == ""
    membership.leave()
    assert membership.notice() == "trepak.elastic.leave()" and not membership.is_over()
    assert membership.withdraw(["a", "b"]) and membership.answer() == "leave"
    assert membership.expected_hosts() == {"b": 1} == kept.told[-1]
    assert membership.is_left_out()
    kept.roster.withdraw("b", ["a", "b"])
    assert membership.withdraw(["a", "b"])  # a second has not gone: nothing was asked
    membership._state.asked_at -= 1.1
    assert not membership.withdraw(["a", "b"]) and membership.answer() == "end"
    assert membership.is_over()


def test_a_launcher_that_has_gone_is_said_once(served: Any) -> None:
    _, port = served
    port.close()
    membership.leave()
    with pytest.warns(UserWarning, match="launcher does not answer at 127.0.0.1.*trepak elastic"):
        assert not membership.withdraw(["a", "b"])
    assert membership.answer() == "silent" and membership.is_over()
    assert membership.expected_hosts() is None and not membership.is_left_out()


def test_a_launcher_that_says_nothing_costs_seconds(served: Any, monkeypatch: Any) -> None:
    with socket.create_server(("127.0.0.1", 0)) as mute:
        monkeypatch.setenv("TREPAK_MEMBERSHIP", f"{mute.getsockname()[1]}:token")
        monkeypatch.setattr(membership, "_ANSWER_SECONDS", 0.3)
        begun = time.monotonic()
        with pytest.warns(UserWarning, match="timed out"):
            assert membership.expected_hosts() is None
        assert time.monotonic() - begun < 5


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\n",
        b"GET / HTTP/1.1\r\n\r\n",
        b"\xff\xfe\x00\n",
        b"[]\n",
        b"{}\n",
        b"3\n",
        b'["t", "hosts"]\n',
        b'["t", "hosts", 1]\n',
        b'[null, "hosts", "a"]\n',
        b'["\\ud800", "hosts", "a"]\n',
        b"[" * 20_000 + b"\n",
        b"9" * 5000 + b"\n",
        b'["no token", "withdraw", "a"]\n',
        b"x" * (server.MOST_BYTES * 4),
        b"x" * (server.MOST_BYTES * 4) + b"\n",
    ],
    ids=range(16),
)
def test_garbage_changes_nothing(served: Any, data: bytes) -> None:
    kept, port = served
    answer = sent(port, data)
    assert answer == b"" or "error" in json.loads(answer)
    assert membership.expected_hosts() == {"a": 2, "b": 1} and len(kept.told) == 1


def test_tokens_are_compared_whole(served: Any) -> None:
    _, port = served
    token = port.credentials.partition(":")[2]
    assert len(token) == 32
    for wrong in ("", token[:-1], token + "0", token.upper() + "A", "é" * 32):
        answer = sent(port, json.dumps([wrong, "hosts", "a"]).encode() + b"\n")
        assert json.loads(answer) == {"error": "the token is not this job's"}
    assert request(port, "hosts", "a") == {"answer": {"a": 2, "b": 1}}
    assert "there is nothing called 'halt'" in request(port, "halt", "a")["error"]


def test_a_host_that_is_none_of_the_job_changes_nothing(served: Any) -> None:
    kept, port = served
    assert request(port, "withdraw", "\x1b[31m") == {"answer": "leave"}
    assert request(port, "left", "x") == {"answer": "yes"}
    assert len(kept.told) == 1 and len(kept.said) == 2


def test_slow_strangers_hold_up_nobody(served: Any) -> None:
    """Each is closed after 2 s, and while they stand the job's ranks are answered."""
    _, port = served
    number = int(port.credentials.partition(":")[0])
    strangers = [socket.create_connection(("127.0.0.1", number), 5) for _ in range(20)]
    for stranger in strangers:
        stranger.sendall(b"[")
    begun = time.monotonic()
    assert membership.expected_hosts() == {"a": 2, "b": 1}
    assert time.monotonic() - begun < server.REQUEST_SECONDS
    drip = strangers[0]
    while time.monotonic() - begun < 3 * server.REQUEST_SECONDS:
        try:
            drip.sendall(b" ")  # each byte comes in time, but not the request
        except ConnectionError:
            break
        time.sleep(0.1)
    else:
        raise AssertionError("a stranger that sends a byte now and then is not closed")
    for stranger in strangers:
        stranger.close()


def test_a_crowd_of_strangers_is_turned_away(served: Any) -> None:
    _, port = served
    number = int(port.credentials.partition(":")[0])
    before = threading.active_count()
    strangers = [socket.create_connection(("127.0.0.1", number), 5) for _ in range(300)]
    time.sleep(0.3)
    assert threading.active_count() - before <= server.MOST_CONNECTIONS
    for stranger in strangers:
        stranger.close()
    deadline = time.monotonic() + 10
    while request_or_none(port) is None:
        assert time.monotonic() < deadline
        time.sleep(0.1)


def request_or_none(port: server.MembershipServer) -> Any:
    try:
        return request(port, "hosts", "a")
    except ValueError:  # turned away
        return None


class Waiting(MemberState):
    """A state that has something to hand on first."""

    has_handed_on = False

    def may_leave(self) -> bool:
        return self.has_handed_on


def test_a_state_withdraws_its_host_when_it_may(served: Any, alone: None) -> None:
    kept, _ = served
    state = Waiting()
    state.check_host_updates()  # in which ranks tell their hosts
    membership.leave()
    state.check_host_updates()
    assert membership.answer() == "" and len(kept.told) == 1
    state.has_handed_on = True
    kept.roster.update({"a": 2, "b": 1, "c": 1})
    state._members = ["a", "b"]  # as if there were a rank of b
    state.check_host_updates()
    assert membership.answer() == "leave" and kept.told[-1] == {"b": 1, "c": 1}


def test_ranks_go_into_a_reset_that_horovod_does_not_tell_them_of(
    served: Any, alone: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    state = MemberState()
    state._members = ["a", "b"]
    membership.leave()
    state.check_host_updates()
    state.check_host_updates()
    monkeypatch.setattr(member_state, "_UNTOLD_SECONDS", 0.0)
    with pytest.raises(HostsUpdatedInterrupt) as interrupt:
        state.check_host_updates()
    assert not interrupt.value.skip_sync
    state.on_reset()
    assert state._left_out_at is None and state._members == []


def test_what_is_heard_before_a_reset_counts_once(alone: None) -> None:
    state = MemberState()
    state.on_hosts_updated(1, None)
    with pytest.raises(HostsUpdatedInterrupt):
        state.check_host_updates()
    state.on_hosts_updated(1, None)  # in the reset: about hosts that come too late for it
    state.on_reset()
    with pytest.raises(HostsUpdatedInterrupt):
        state.check_host_updates()
    state.check_host_updates()


@pytest.mark.parametrize("launcher", ["has gone", "says so"])
def test_a_rank_ends_when_nobody_goes_on(
    served: Any, alone: None, launcher: str, capsys: pytest.CaptureFixture[str]
) -> None:
    kept, port = served
    state = MemberState()
    state.check_host_updates()
    membership.leave()
    if launcher == "has gone":
        port.close()
    else:
        kept.roster.update({"a": 1})
    with warnings.catch_warnings(), pytest.raises(SystemExit) as end:
        warnings.simplefilter("ignore")
        state.check_host_updates()
    assert end.value.code == 128 + signal.SIGTERM
    assert capsys.readouterr().err == "trepak: all hosts have notice: the job ends.\n"


def test_ranks_without_a_launcher_keep_what_sigterm_does(tmp_path: Path) -> None:
    """No handler is installed, and one warning says why `leave` does nothing."""
    program = (
        "import os, signal, warnings\n"
        "from trepak.horovod_ext import membership\n"
        "before = signal.getsignal(signal.SIGTERM)\n"
        "membership.watch()\n"
        "assert signal.getsignal(signal.SIGTERM) == before and membership.notice() is None\n"
        "with warnings.catch_warnings(record=True) as caught:\n"
        "    warnings.simplefilter('always')\n"
        "    membership.leave()\n"
        "    assert not membership.withdraw() and not membership.withdraw()\n"
        "assert ['trepak elastic' in str(one.message) for one in caught] == [True], caught\n"
        "assert membership.expected_hosts() is None and not membership.is_over()\n"
        "assert not membership.is_left_out()\n"
        "os.kill(os.getpid(), signal.SIGTERM)\n"
    )
    environment = os.environ | {"HOROVOD_ELASTIC": "1", "HOROVOD_HOSTNAME": "h1"}
    done = subprocess.run(
        [sys.executable, "-c", program],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        timeout=90,
    )
    assert done.returncode == -signal.SIGTERM, done.stderr


@pytest.mark.parametrize("kinds", [(MemberState, TensorFlowState), (TensorFlowState, MemberState)])
def test_a_script_with_two_kinds_of_training_is_refused(
    kinds: tuple[type[MemberState], ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(member_state, "_first_kind", None)
    first, second = (kind.__new__(kind) for kind in kinds)
    monkeypatch.setattr(MemberState, "sync", lambda _: None)
    monkeypatch.setattr(TensorFlowState, "sync", lambda _: None)
    train = run(lambda state: state.kind)
    assert [train(first), train(first)] == [first.kind, first.kind]
    with pytest.raises(
        ValueError, match=f"trained by {first.kind}, and goes on with {second.kind}"
    ):
        train(second)

"""What the launcher of elastic jobs keeps of hosts: lists, notices, and Horovod's script."""

from __future__ import annotations

import os
import subprocess
import time
from pathlib import Path

import pytest

from trepak.scripts.elastic import job, listing
from trepak.scripts.elastic.discovery import Discovery
from trepak.scripts.elastic.roster import LEAVE_SECONDS, REST_SECONDS, Roster
from trepak.scripts.errors import InputError


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


class Kept:
    """A roster, what it said, and what it told Horovod."""

    def __init__(self, least: int = 1) -> None:
        self.said: list[str] = []
        self.told: list[dict[str, int]] = []
        self.clock = Clock()
        self.is_known = True
        self.roster = Roster(
            least, self.said.append, self.told.append, lambda: self.is_known, self.clock
        )


def test_a_list_is_read_from_a_file_or_a_program(tmp_path: Path) -> None:
    text = "# of this queue\nnode-1:2\n\n10.0.0.7:1  # spot\n"
    hosts = tmp_path / "hosts"
    hosts.write_text(text)
    assert listing.read(hosts) == {"node-1": 2, "10.0.0.7": 1}
    hosts.write_text(f"#!/bin/sh\ncat <<'END'\n{text}END\n")
    hosts.chmod(0o700)
    assert listing.read(hosts) == {"node-1": 2, "10.0.0.7": 1}


@pytest.mark.parametrize(
    "line", ["node", "node:", "node:0", "node:x", "node:-1", "node:1:2", ":1", "-oProxy:1"]
)
def test_what_is_no_host_is_named(line: str) -> None:
    with pytest.raises(InputError, match="line 2 of hosts must be name:slots"):
        listing.parse(f"first:1\n{line}\n", "hosts")


@pytest.mark.parametrize(
    "line", ["a b:1", "a;b:1", "$(a):1", "a:99999", "a:²", "é:1", "\x1b[31m:1"]
)
def test_no_line_reaches_a_shell_or_a_terminal(line: str) -> None:
    with pytest.raises(InputError, match=r"must be name:slots") as found:
        listing.parse(line, "hosts")
    assert "\x1b" not in str(found.value)


def test_a_host_that_is_listed_twice_is_named() -> None:
    with pytest.raises(InputError, match="line 2 of hosts lists a again"):
        listing.parse("a:1\na:2\n", "hosts")


@pytest.mark.parametrize(
    ("script", "seconds", "message"),
    [
        ("echo no such queue >&2; exit 3", 20, "failed with exit code 3: no such queue"),
        ("exit 1", 20, "failed with exit code 1: it printed no error"),
        ("sleep 60 & sleep 60", 0.5, "took longer than 0.5 s"),
        ("kill $$", 20, "failed with exit code -15"),
    ],
)
def test_a_program_that_fails_is_explained(
    tmp_path: Path, script: str, seconds: float, message: str
) -> None:
    hosts = tmp_path / "hosts.sh"
    hosts.write_text(f"#!/bin/sh\n{script}\n")
    hosts.chmod(0o700)
    begun = time.monotonic()
    with pytest.raises(InputError, match=message):
        listing.read(hosts, seconds=seconds)
    assert time.monotonic() - begun < 20


def test_hosts_come_and_go() -> None:
    kept = Kept()
    kept.roster.update({"a": 1, "b": 2})
    kept.roster.update({"a": 1, "b": 2})
    kept.roster.update({"a": 3})
    assert kept.told == [{"a": 1, "b": 2}, {"a": 3}]
    assert kept.said == [
        "a joins (1 slot).",
        "b joins (2 slots).",
        "a has 3 slots now; it had 1.",
        "b is no longer listed: its ranks leave at the next commit.",
    ]


def test_a_withdrawn_host_comes_back_when_it_was_not_listed() -> None:
    kept = Kept()
    both = {"a": 1, "b": 1}
    kept.roster.update(both)
    assert kept.roster.withdraw("b", ["a", "b"]) == "leave"
    assert kept.roster.withdraw("b", ["a", "b"]) == "leave"  # of another rank
    kept.roster.update(both)
    assert kept.roster.expected() == {"a": 1}
    kept.roster.update({"a": 1})
    kept.roster.update(both)
    assert kept.told == [both, {"a": 1}, both]
    assert kept.said[2:] == [
        "b is withdrawn: its ranks leave at the next commit.",
        "b, which was withdrawn, is no longer listed: it may come back.",
        "b joins (1 slot).",
    ]
    assert kept.roster.withdraw("b", ["a", "b"]) == "leave"  # its notice was forgotten


def test_a_host_stays_out_until_its_ranks_have_ended() -> None:
    """Else Horovod would take the end of the old rank for that of the new one."""
    kept = Kept()
    both = {"a": 1, "b": 1}
    kept.roster.update(both)
    kept.roster.update({"a": 1})
    kept.is_known = False
    assert kept.roster.leaving("b") == "wait"
    kept.is_known = True
    assert kept.roster.leaving("b") == "yes" and kept.roster.leaving("a") == "no"
    kept.roster.update(both)
    assert kept.roster.expected() == {"a": 1}
    kept.clock.now = LEAVE_SECONDS - 1
    kept.roster.left("b")
    kept.roster.left("a")  # which was promised nothing
    kept.clock.now += REST_SECONDS - 1
    kept.roster.update(both)
    assert kept.roster.expected() == {"a": 1}
    kept.clock.now += 2
    kept.roster.update(both)
    assert kept.roster.expected() == both
    assert kept.roster.leaving("b") == "no"


def test_a_promise_to_a_rank_that_was_killed_ends() -> None:
    kept = Kept()
    kept.roster.update({"a": 1})
    assert kept.roster.leaving("b") == "yes"
    kept.clock.now = LEAVE_SECONDS + 1
    kept.roster.update({"a": 1, "b": 1})
    assert kept.roster.expected() == {"a": 1, "b": 1}


def test_a_host_stays_while_it_is_needed() -> None:
    kept = Kept(least=2)
    kept.roster.update({"a": 1, "b": 1})
    assert kept.roster.withdraw("b", ["a", "b"]) == "wait"
    assert kept.roster.withdraw("b", ["a", "b"]) == "wait"
    kept.roster.update({"a": 1, "b": 1, "c": 1})
    assert kept.roster.withdraw("b", ["a", "b"]) == "leave"
    assert kept.roster.withdraw("a", ["a", "b"]) == "wait"  # c has not joined yet
    assert kept.said[2:] == [
        "b has notice, but stays: without it there are slots for 1, and --min-np is 2.",
        "c joins (1 slot).",
        "b is withdrawn: its ranks leave at the next commit.",
        "a has notice, but stays: no other host has the job's state.",
    ]


def test_the_job_ends_when_all_hosts_have_notice() -> None:
    kept = Kept()
    kept.roster.update({"a": 1, "b": 1})
    assert kept.roster.withdraw("a", ["a", "b"]) == "leave"
    assert kept.roster.withdraw("b", ["a", "b"]) == "end"
    assert kept.roster.withdraw("a", ["a", "b"]) == "end"
    assert kept.said[-1] == "b has notice, as all hosts have: the job ends."
    kept.roster.update({"a": 1, "b": 1, "c": 1})
    assert kept.roster.withdraw("b", ["b", "c"]) == "leave"


def test_the_script_prints_what_was_written_last(tmp_path: Path) -> None:
    folder = tmp_path / "it's a folder"
    folder.mkdir()
    discovery = Discovery(folder)

    def printed() -> str:
        return subprocess.run(
            [discovery.script], check=True, capture_output=True, text=True, timeout=10
        ).stdout

    with pytest.raises(subprocess.CalledProcessError):
        printed()
    discovery.write({"a": 1, "b": 2})
    assert not discovery.is_known()
    assert printed() == "a:1\nb:2\n"
    assert not discovery.is_known()  # Horovod may not have acted upon it yet
    printed()
    assert discovery.is_known()
    discovery.write({})
    assert not discovery.is_known()
    assert printed() == ""
    printed()
    assert discovery.is_known()


def test_horovodrun_gets_all_options(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(job, "horovodrun", lambda: "horovodrun")
    planned = job.Job(
        ["python", "train.py", "-v"], tmp_path, 4, 2, 8, (30, 300), ["lo"], ["--ssh-port", "2222"]
    )
    assert " ".join(job.launcher(planned, Path("discover.sh"))) == (
        "horovodrun --gloo -np 4 --min-np 2 --max-np 8 --host-discovery-script discover.sh "
        "--blacklist-cooldown-range 30 300 --gloo-timeout-seconds 120 --network-interfaces lo "
        "--ssh-port 2222 python train.py -v"
    )


def test_a_list_that_can_no_longer_be_read_changes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(job, "_LIST_SECONDS", 0.05)
    hosts = tmp_path / "hosts"
    hosts.write_text("a:1\n")
    kept = Kept()
    kept.roster.update(listing.read(hosts))
    said = ""
    with job._kept(kept.roster, hosts):
        for text, line in (
            ("a:one\n", f"line 1 of {hosts} must be name:slots"),
            ("b:1\n", f"{hosts} lists hosts again."),
            ("# none\n", f"{hosts} lists no hosts. The hosts stay as they were."),
            ("b:1\n", f"{hosts} lists hosts again."),
        ):
            new = tmp_path / "new"
            new.write_text(text)
            os.replace(new, hosts)
            deadline, seen = time.monotonic() + 10, said.count(line)
            while said.count(line) == seen:
                assert time.monotonic() < deadline, said
                time.sleep(0.05)
                said += capsys.readouterr().err
            time.sleep(0.2)
    said += capsys.readouterr().err
    assert len(said.splitlines()) == 4 and said.count("The hosts stay as they were.") == 2
    assert kept.told == [{"a": 1}, {"b": 1}]

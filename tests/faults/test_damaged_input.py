"""Files and addresses that are something else: every command names them, in one line."""

from __future__ import annotations

import gzip
import http.server
import json
import os
import socket
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from one_line import check_one_line, command, no_labs  # noqa: F401

from trepak.scripts import cli

pytestmark = pytest.mark.usefixtures("no_labs")


def sparse(path: Path) -> None:
    with path.open("wb") as file:
        file.truncate(1 << 40)


def nested(path: Path) -> None:
    path.write_text("[" * 100_000)


CONTENTS: dict[str, Callable[[Path], Any]] = {
    "empty": lambda path: path.write_bytes(b""),
    "binary": lambda path: path.write_bytes(os.urandom(5000)),
    "text": lambda path: path.write_text("[/x]\n" * 10),
    "zeros": lambda path: path.write_bytes(bytes(3 << 20)),
    "huge": sparse,
    "number": lambda path: path.write_text("1\n"),
    "list": lambda path: path.write_text("[1, 2]\n"),
    "object": lambda path: path.write_text('{"rank": 0}\n'),
    "nested": nested,
    "gzip": lambda path: path.write_bytes(gzip.compress(b"[1]")),
    "fifo": lambda path: os.mkfifo(path),
    "folder": lambda path: path.mkdir(),
    "nowhere": lambda path: path.symlink_to("/nowhere/at all"),
    "itself": lambda path: path.symlink_to(path),
    "endless": lambda path: path.symlink_to("/dev/zero"),
}


@pytest.mark.parametrize("content", CONTENTS)
def test_files_that_are_something_else(content: str, capfd: Any, tmp_path: Path) -> None:
    """The same contents wherever a command reads: the message names the file."""
    traces = tmp_path / "[/x]"
    (tmp_path / "labs").mkdir()
    traces.mkdir(parents=True)
    places = {
        traces / "rank-0.json": ["trace", "merge", str(traces)],
        tmp_path / "labs/two.json": ["lab", "status"],
        traces / "about.json": ["bench", "rna", "--kept", str(traces)],
    }
    for path, arguments in places.items():
        if path.name == "about.json" and content in ("number", "list", "object"):
            continue  # about.json is only copied
        if path.name == "two.json" and content == "nowhere":
            continue  # as if there were none
        CONTENTS[content](path)
        code, stderr = command(capfd, *arguments)
        check_one_line(code, stderr)
        assert str(path) in stderr, stderr
        if path.parent == traces and path.name == "rank-0.json":
            assert not (traces / "merged.json").exists()
            path.rmdir() if path.is_dir() and not path.is_symlink() else path.unlink()


@pytest.mark.parametrize("content", CONTENTS)
def test_top_passes_over_files_that_are_something_else(content: str, capfd: Any) -> None:
    from trepak.scripts.top import sinks

    folder = sinks.status_folder()
    folder.mkdir(mode=0o700)
    CONTENTS[content](folder / "1.json")
    assert cli.main(["top", "--once"]) == 0
    assert "No job on this machine" in capfd.readouterr().out


def events(change: Callable[[list[Any]], Any]) -> str:
    good: list[Any] = [
        {"ph": "M", "name": "trepak", "pid": 0, "args": {"rank": 0, "size": 1, "clock": "c"}},
        {"ph": "X", "name": "compute", "ts": 1.0, "dur": 1.0, "pid": 0, "tid": 0}
        | {"args": {"step": 0}},
        {"ph": "X", "name": "synchronize", "ts": 2.0, "dur": 1.0, "pid": 0, "tid": 0}
        | {"args": {"step": 0}},
        {"ph": "X", "name": "round", "ts": 2.0, "dur": 1.0, "pid": 0, "tid": 4}
        | {"args": {"run": 0, "group": 0, "round": 0}},
        {"ph": "C", "name": "bytes", "ts": 2.0, "pid": 0, "args": {"value": 7}},
    ]
    change(good)
    return "[\n" + ",\n".join(map(json.dumps, good)) + "\n]\n"


DAMAGES: list[Callable[[list[Any]], Any]] = [
    lambda all_of_them: all_of_them[0]["args"].pop("clock"),
    lambda all_of_them: all_of_them[0]["args"].update(rank="[/x]"),
    lambda all_of_them: all_of_them[0]["args"].update(size=None),
    lambda all_of_them: all_of_them[0]["args"].update(monotonic="x", started=1),
    lambda all_of_them: all_of_them[0].update(args=3),
    lambda all_of_them: all_of_them[1].pop("ph"),
    lambda all_of_them: all_of_them[1].pop("dur"),
    lambda all_of_them: all_of_them[1].update(ts="x"),
    lambda all_of_them: all_of_them[1].update(ts=float("nan")),
    lambda all_of_them: all_of_them[1]["args"].update(step=[]),
    lambda all_of_them: all_of_them[1].pop("args"),
    lambda all_of_them: all_of_them[1].update(tid=None),
    lambda all_of_them: all_of_them[3]["args"].pop("run"),
    lambda all_of_them: all_of_them[4].pop("ts"),
    lambda all_of_them: all_of_them[4]["args"].update(value=[]),
    lambda all_of_them: all_of_them[4].update(args={}),
    lambda all_of_them: all_of_them.append(None),
    lambda all_of_them: all_of_them.append({"ph": "M", "name": "x", "ts": "y", "pid": 0}),
]


@pytest.mark.parametrize("damage", range(len(DAMAGES)))
def test_timelines_that_are_damaged(damage: int, capfd: Any, tmp_path: Path) -> None:
    (tmp_path / "rank-0.json").write_text(events(DAMAGES[damage]))
    code, stderr = command(capfd, "trace", "merge", str(tmp_path))
    check_one_line(code, stderr, 2)
    assert "rank-0.json is not a timeline of trepak" in stderr


def test_a_timeline_that_is_well(capfd: Any, tmp_path: Path) -> None:
    (tmp_path / "rank-0.json").write_text(events(lambda good: None))
    assert command(capfd, "trace", "merge", str(tmp_path)) == (0, "")
    for output in (tmp_path, Path("/dev/full"), tmp_path / "rank-0.json", Path("/dev/null/x")):
        check_one_line(*command(capfd, "trace", "merge", str(tmp_path), "-o", str(output)))


class Answer(http.server.BaseHTTPRequestHandler):
    """Answers what the test wants."""

    content: bytes = b""
    status = 200

    def do_GET(self) -> None:
        self.send_response(self.status)
        self.end_headers()
        self.wfile.write(self.content)

    def log_message(self, *arguments: Any) -> None:
        """Says nothing."""


@pytest.fixture(scope="module")
def server() -> Iterator[http.server.HTTPServer]:
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Answer) as found:
        threading.Thread(target=found.serve_forever, daemon=True).start()
        yield found
        found.shutdown()


def metrics(rank: object = 0, host: str = "h", steps: object = 3) -> bytes:
    label = f'{{rank="{rank}",host="{host}"}}'
    return (
        f"trepak_steps {steps}\ntrepak_seconds 1.5\ntrepak_compute_seconds{label} 0.75\n"
    ).encode()


@pytest.mark.parametrize(
    ("status", "content"),
    [
        (404, b""),
        (500, metrics()),
        (200, b""),
        (200, os.urandom(3000)),
        (200, b"[/x]\n"),
        (200, metrics(steps="NaN")),
        (200, metrics(rank="[/x]")),
        (200, metrics(steps="1e999")),
        (200, b"trepak_steps 3\n"),
        (200, b"trepak_steps 3\ntrepak_seconds 1\ntrepak_compute_seconds 1\n" * 2),
        (200, b"x" * (17 << 20)),
    ],
)
def test_addresses_where_something_else_answers(
    server: Any, monkeypatch: pytest.MonkeyPatch, capfd: Any, status: int, content: bytes
) -> None:
    monkeypatch.setattr(Answer, "status", status)
    monkeypatch.setattr(Answer, "content", content)
    address = f"127.0.0.1:{server.server_port}"
    if content.startswith(b"trepak_steps 3\ntrepak_seconds 1\ntrepak"):
        content = b""
    check_one_line(*command(capfd, "top", "--once", "--address", address))


def test_hosts_are_no_markup(server: Any, monkeypatch: Any, capfd: Any) -> None:
    monkeypatch.setattr(Answer, "content", metrics(host="[/x]\x1b[31m"))
    assert cli.main(["top", "--once", "--address", f"127.0.0.1:{server.server_port}"]) == 0
    shown = capfd.readouterr().out
    assert "[/x]\N{REPLACEMENT CHARACTER}[31m" in shown and "\x1b" not in shown


def test_who_answers_a_byte_at_a_time_is_hung_up_on(capfd: Any, monkeypatch: Any) -> None:
    from trepak.scripts import top

    monkeypatch.setattr(top, "_ANSWER_SECONDS", 0.5)
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def drip() -> None:
            line, _ = listener.accept()
            with line:
                while True:
                    try:
                        line.sendall(b"H")
                    except OSError:
                        return
                    time.sleep(0.1)

        threading.Thread(target=drip, daemon=True).start()
        began = time.monotonic()
        address = f"127.0.0.1:{listener.getsockname()[1]}"
        check_one_line(*command(capfd, "top", "--once", "--address", address), 1)
        assert time.monotonic() - began < 30  # and not for ever

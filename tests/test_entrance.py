"""Every command on bad input: one line that says what to do, an exit code, no traceback."""

from __future__ import annotations

import gzip
import http.server
import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from test_lab import needs_lab

from trepak.scripts import cli, entrance, errors
from trepak.scripts.lab import network, state

TREPAK = str(Path(sys.executable).parent / "trepak")
NAME = f"end{os.getpid() % 10000}"
ODD = ["", "[/x]", "[bold", "\x1b[31mred", "a\nb", "-", "%s{}", "\udcff", "x" * 5000, "é\u202e"]


def command(capfd: Any, *arguments: str) -> tuple[int, str]:
    """Runs a command in this process; returns its exit code and what it wrote on stderr."""
    code = cli.main(list(arguments))
    return code, capfd.readouterr().err


def check_one_line(code: int, stderr: str, expected: int | None = None) -> None:
    assert code == expected if expected else code not in (0, None), stderr
    assert stderr.startswith("trepak: ") and stderr.endswith((".\n", "?\n")), stderr
    assert stderr.count("\n") == 1 and "\x1b" not in stderr, repr(stderr)
    assert "Traceback" not in stderr


@pytest.fixture(autouse=True)
def no_labs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(state, "FOLDER", tmp_path / "labs")
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))


def texts(*before: str, after: tuple[str, ...] = ()) -> list[list[str]]:
    return [[*before, odd, *after] for odd in ODD]


RUN = ("lab", "run", "--name", "none")
WRONG = [
    *texts(),
    ["bench"],
    *texts("bench"),
    *texts("bench", "bsp", "--np"),
    *[["bench", "bsp", "--np", number] for number in ("0", "-1", "1.5", "nan", "9" * 5000, "1e9")],
    *texts("bench", "bsp", "--png"),
    *texts("bench", "rna", "--kept"),
    *texts("bench", "bsp", "--kept"),
    ["bench", "bsp", "--json", "/dev/null/x.json"],
    ["bench", "bsp", "--json", "/"],
    ["bench", "bsp", "--json", "x" * 5000],
    *texts("doctor"),
    ["lab"],
    *texts("lab"),
    *[["lab", "up", option, odd] for odd in ODD for option in ("-n", "--rate", "--priorities")],
    *[["lab", action, "--name", odd] for odd in ODD for action in ("up", "down", "status", "run")],
    ["lab", "up", "-n", "65"],
    ["lab", "up", "--packet", "1"],
    ["lab", "up", "--rate", "9" * 400 + "gbit"],
    ["lab", "run"],
    [*RUN, "--", "true"],
    *[[*RUN, "-np", number, "--", "true"] for number in ("0", "-3", "x", "99999999999")],
    *[[*RUN, "--timeout", number, "--", "true"] for number in ("0", "-1", "nan", "inf", "[/x]")],
    *[[*RUN, "--seed", number, "--", "true"] for number in ("-1", "x", "9" * 30)],
    *[["top", "--once", "--address", odd] for odd in ODD],
    *[
        ["top", "--once", "--address", address]
        for address in (
            "[/x]:1",
            "host",
            "host:",
            ":1",
            "host:0",
            "host:65536",
            "http://host:1",
            "a b:1",
            "user@host:1",
            "[::1",
            "x" * 250 + ":1",
            "a..b:1",
            "127.0.0.1:1",
        )
    ],
    ["trace"],
    *texts("trace"),
    *texts("trace", "merge"),
    *texts("trace", "merge", ".", after=()),
    *[["trace", "merge", ".", "--steps", steps] for steps in ("", "x", "5:3", "-1:2", "1:2:3")],
    ["trace", "merge", "/dev/null"],
    ["trace", "merge", "/proc/self/mem"],
]


@pytest.mark.parametrize(
    "arguments", WRONG, ids=lambda one: " ".join(one)[:40].encode("unicode_escape").decode()
)
def test_wrong_usage(
    arguments: list[str], capfd: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    check_one_line(*command(capfd, *arguments))
    assert list(tmp_path.iterdir()) == [], "nothing was made"


def lab_of(tmp_path: Path) -> None:
    (tmp_path / "labs").mkdir()
    lab = {"name": "two", "hosts": 2, "rate": 10**9}
    (tmp_path / "labs/two.json").write_text(json.dumps(lab))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--slow", "w1=nan"], "--slow"),
        (["--slow", "[/x]"], "--slow"),
        (["--slow", "w7=2"], "no host 'w7'"),
        (["--link", "w1=[/x]"], "--link"),
        (["--delay", "[/x]"], "--delay"),
        (["--delay", f"uniform:0:{'9' * 400}"], "--delay"),
        (["--kill", "w1@step:²"], "--kill"),
        (["--kill", f"w1@step:{'9' * 5000}"], "--kill"),
        (["--json", "/dev/null/x"], "/dev/null"),
    ],
)
def test_wrong_unevenness(
    options: list[str], message: str, capfd: Any, tmp_path: Path, monkeypatch: Any
) -> None:
    lab_of(tmp_path)
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    code, stderr = command(capfd, "lab", "run", "--name", "two", *options, "--", "true")
    check_one_line(code, stderr)
    assert message in stderr


def test_programs_that_are_not_there(capfd: Any, tmp_path: Path, monkeypatch: Any) -> None:
    lab_of(tmp_path)
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    for program in ("[/x]", "no-such-program", "--bogus"):
        code, stderr = command(capfd, "lab", "run", "--name", "two", "--", program)
        check_one_line(code, stderr, 2)
        assert f"there is no program '{program}'" in stderr


@pytest.mark.parametrize("action", ["up", "down", "run"])
def test_without_root(action: str, capfd: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    code, stderr = command(capfd, "lab", action)
    check_one_line(code, stderr, 1)
    assert "needs root" in stderr and "sudo" in stderr


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
        assert time.monotonic() - began < 3


def test_mistakes_in_trepak_keep_their_traceback() -> None:
    for mistake in (KeyError("x"), ValueError("x"), AssertionError(), TypeError("x")):

        def wrong(error: Exception = mistake) -> int:
            raise error

        with pytest.raises(type(mistake)):
            entrance.run_command(wrong)
    with pytest.raises(ImportError):
        entrance.run_command(lambda: __import__("trepak.no_such_module") and 0)


@pytest.mark.parametrize(
    ("error", "code", "line"),
    [
        (errors.InputError("wrong"), 2, "wrong."),
        (network.LabError("a\nb"), 1, "a b."),
        (PermissionError(13, "Permission denied", "/x"), 1, "/x: Permission denied: choose"),
        (MemoryError(), 1, "there is not enough memory"),
        (KeyboardInterrupt(), 130, "interrupted."),
        (
            ModuleNotFoundError("No module named 'rich'", name="rich"),
            1,
            "No module named 'rich'; `",
        ),
        (SystemExit("ended"), 1, "ended."),
    ],
)
def test_what_users_are_told(error: BaseException, code: int, line: str, capfd: Any) -> None:
    def fail() -> int:
        raise error

    assert entrance.run_command(fail) == code
    stderr = capfd.readouterr().err
    check_one_line(code, stderr, code)
    assert stderr.startswith(f"trepak: {line}")


def test_the_rest_of_the_output_comes_first(tmp_path: Path) -> None:
    code = (
        "from trepak.scripts.entrance import run_command\n"
        "from trepak.scripts.errors import UserError\n"
        "def fail():\n    print('written')\n    raise UserError('failed')\n"
        "raise SystemExit(run_command(fail))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout, done.stderr) == (1, "written\n", "trepak: failed.\n")


LIGHT = [["--help"], ["--version"], ["top", "--once"], ["lab", "status"], ["lab", "run", "--help"]]


@pytest.mark.parametrize("unbuffered", ["", "1"], ids=["buffered", "unbuffered"])
@pytest.mark.parametrize("arguments", LIGHT, ids=" ".join)
def test_output_that_nobody_reads(arguments: list[str], unbuffered: str) -> None:
    for target in ("closed pipe", "/dev/full", "closed"):
        read, write = os.pipe()
        os.close(read)
        full = os.open("/dev/full", os.O_WRONLY)
        if target == "closed":
            shell = ["/bin/sh", "-c", 'exec "$0" "$@" >&-', TREPAK, *arguments]
        else:
            shell = [TREPAK, *arguments]
        done = subprocess.run(
            shell,
            stdout=write if target == "closed pipe" else full,
            stderr=subprocess.PIPE,
            env=os.environ | {"PYTHONUNBUFFERED": unbuffered},
            text=True,
            timeout=60,
        )
        os.close(write)
        os.close(full)
        check_one_line(done.returncode, done.stderr, 141 if target == "closed pipe" else 1)


def interrupt(process: subprocess.Popen[str], times: int = 1) -> tuple[int, str, str]:
    for _ in range(times):
        process.send_signal(signal.SIGINT)
        time.sleep(0.3)
    stdout, stderr = process.communicate(timeout=40)
    return process.returncode, stdout, stderr


def start(*arguments: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [TREPAK, *arguments],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | {"PYTHONUNBUFFERED": "1"},
    )


def test_what_users_name_is_no_markup(capfd: Any) -> None:
    from rich.table import Table

    table = Table("[/x]", title="[/x]")
    table.add_row("[/x] :smile:")
    entrance.console().print(table)
    entrance.console().print("[/x]")
    assert capfd.readouterr().out.count("[/x]") == 4


def test_commands_have_one_console() -> None:
    """Others would take what users name for markup."""
    folder = Path(cli.__file__).parent
    made = [p.name for p in folder.rglob("*.py") if re.search(r"\bConsole\(", p.read_text())]
    assert made == [] and "Plain(markup=False" in (folder / "entrance.py").read_text()


def test_a_second_ctrl_c_does_not_wait() -> None:
    """A job that ignores SIGTERM; horovodrun's may take 20 seconds."""
    job = "trap '' TERM; echo $$; while :; do sleep 0.1; done"
    code = (
        "import os\n"
        "from trepak.scripts.entrance import run_command\n"
        "from trepak.scripts.launcher import supervise\n"
        f"command = ['/bin/sh', '-c', {job!r}]\n"
        "raise SystemExit(run_command(lambda: supervise(command, env=os.environ).exit_code))"
    )
    command = [sys.executable, "-c", code]
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, bufsize=1
    )
    assert process.stdout is not None
    pid = int(process.stdout.readline())
    began = time.monotonic()
    code_and_output = interrupt(process, 2)
    assert code_and_output == (130, "", "trepak: interrupted.\n")
    assert time.monotonic() - began < 10
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


def test_ctrl_c_ends_top() -> None:
    process = start("top")
    assert process.stdout is not None
    assert process.stdout.readline().startswith("No job on this machine")
    code, _, stderr = interrupt(process)
    assert (code, stderr) == (130, "trepak: interrupted.\n")


@needs_lab
@pytest.mark.parametrize("times", [1, 2], ids=["once", "twice"])
def test_ctrl_c_ends_a_job_in_a_lab(times: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()  # a real lab, in its real place
    lab, _ = state.up(NAME, hosts=2, rate=10**9, priorities=1)
    try:
        program = "import time; print('runs', flush=True); time.sleep(100)"
        process = start("lab", "run", "--name", NAME, "--", sys.executable, "-c", program)
        assert process.stdout is not None
        assert "runs" in process.stdout.readline()
        code, _, stderr = interrupt(process, times)
        assert code == 130, stderr
        assert "Traceback" not in stderr
        assert stderr.splitlines()[-1] == "trepak: interrupted."
        assert network.processes(lab) == {}
    finally:
        state.down(NAME)

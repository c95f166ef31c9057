"""Every command on bad input: one line that says what to do, an exit code, no traceback."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from one_line import check_one_line, command, no_labs  # noqa: F401
from test_lab import needs_lab

from trepak.scripts import cli, entrance, errors
from trepak.scripts.lab import network, state

TREPAK = str(Path(sys.executable).parent / "trepak")
pytestmark = pytest.mark.usefixtures("no_labs")
NAME = f"end{os.getpid() % 10000}"
ODD = ["", "[/x]", "[bold", "\x1b[31mred", "a\nb", "-", "%s{}", "\udcff", "x" * 5000, "é\u202e"]


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
    ["elastic"],
    *texts("elastic", "-np", "1", "--hosts", after=("--", "true")),
    ["elastic", "-np", "1", "--hosts", "/dev/null"],
    ["elastic", "-np", "1", "--hosts", "/dev/null", "--", "true"],
    ["elastic", "-np", "1", "--hosts", __file__, "--", "true"],
    ["elastic", "-np", "1", "--hosts", "/bin/false", "--", "true"],
    *texts("elastic", "-np", "1", "--hosts", "/bin/false", "--horovodrun", after=("--", "true")),
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
    ["train"],
    *texts("train"),
    *[["train", "ctr", "--criteo", odd] for odd in ODD if odd != "-"],
    *[["train", "ctr", option, "[/x]"] for option in ("--np", "--model", "--scale", "--stages")],
    *[["train", "ctr", "--scale", scale] for scale in ("0", "-1", "nan", "inf", "11")],
    ["train", "ctr", "--movielens", "ratings.csv"],
    ["train", "ctr", "--criteo", "/dev/null", "--avazu", "/dev/null"],
    ["train", "ctr", "--np", "7"],
    ["train", "ctr", "--samples", "9"],
    ["train", "ctr", "--output", "/dev/null/x"],
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
    job = "trap 'echo told' TERM; echo $$; while :; do (trap '' TERM; sleep 0.1); done"
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
    process.send_signal(signal.SIGINT)
    assert process.stdout.readline() == "told\n"  # two signals that come at once would count as one
    code_and_output = interrupt(process)
    assert code_and_output == (130, "", "trepak: interrupted.\n")
    assert time.monotonic() - began < 10
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


@pytest.mark.parametrize("loading", ["trepak.scripts.cli", "trepak.scripts.entrance"])
def test_ctrl_c_while_modules_load(loading: str, tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text(
        "import signal, sys\n"
        "class Finder:\n"
        "    def find_spec(self, name, *rest):\n"
        f"        if name == {loading!r}:\n"
        "            signal.raise_signal(signal.SIGINT)\n"
        "sys.meta_path.insert(0, Finder())\n"
    )
    environment = os.environ | {"PYTHONPATH": str(tmp_path)}
    done = subprocess.run([TREPAK], env=environment, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "trepak: interrupted.\n")


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

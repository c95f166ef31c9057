"""Starts a command on several processes with horovodrun, and shows what they print.

horovodrun tags every line with its rank and imports TensorFlow, which prints start-up messages. The
launcher takes the tags off, keeps known noise back, and shows everything if the job fails.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

from trepak.ops.loader import mpi_yield_path
from trepak.scripts.errors import UserError
from trepak.scripts.interrupts import Interrupts, kill_group
from trepak.scripts.light_import import light_import

# One thread each, so that processes that share a machine do not fight for its cores; and MPI
# processes that wait must let the others run.
PINNED = {
    "TF_NUM_INTRAOP_THREADS": "1",
    "OMP_NUM_THREADS": "1",
    "TF_CPP_MIN_LOG_LEVEL": "2",
    "OMPI_MCA_mpi_yield_when_idle": "1",
}

# "[1,0]<stdout>:" from MPI, "[0]<stdout>:" from Gloo.
_TAG = re.compile(r"\[(?:\d+,)?(\d+)\]<(stdout|stderr)>:")
_STOP_SECONDS = 20.0


@dataclass(frozen=True)
class Line:
    """One line that a job printed.

    Attributes:
        rank: the process that printed it; None is the launcher itself.
        stream: "stdout" or "stderr".
        text: the line, without tag and line end.
    """

    rank: int | None
    stream: str
    text: str

    def __str__(self) -> str:
        return self.text if self.rank is None else f"[{self.rank}] {self.text}"


@dataclass
class Outcome:
    """How a job ended.

    Attributes:
        exit_code: horovodrun's exit code; 0 if all processes succeeded.
        lines: everything that was printed, noise included, in the order in which it came.
    """

    exit_code: int
    lines: list[Line] = field(default_factory=list)

    def text(self) -> str:
        """Returns all the lines, with ranks."""
        return "\n".join(map(str, self.lines))


class JobError(UserError):
    """A job failed, or was stopped because it took too long; the message ends with its output."""

    with_output = True


def is_noise(text: str) -> bool:
    """Returns whether a line is one of TensorFlow's or Horovod's known start-up messages."""
    noise: bool = light_import("trepak.horovod_ext.startup").is_noise(text)
    return noise


class _Untagger:
    """Puts the lines of several processes together again; used by one thread.

    A process may print a line in pieces, which MPI tags one by one and mixes with other processes'.
    """

    def __init__(self, stream: str, emit: Callable[[Line], None]) -> None:
        self._stream = stream
        self._emit = emit
        self._pending: dict[tuple[int | None, str], str] = {}

    def feed(self, text: str) -> None:
        """Takes one line as it came, with its line end if it has one."""
        head, *rest = _TAG.split(text)
        if head:
            self._add((None, self._stream), head)
        for rank, stream, piece in zip(rest[0::3], rest[1::3], rest[2::3], strict=True):
            self._add((int(rank), stream), piece)

    def close(self) -> None:
        """Hands out lines that never ended."""
        for (rank, stream), text in self._pending.items():
            if text:
                self._emit(Line(rank, stream, text))
        self._pending.clear()

    def _add(self, source: tuple[int | None, str], piece: str) -> None:
        text = self._pending.pop(source, "") + piece
        if text.endswith("\n"):
            self._emit(Line(*source, text.rstrip("\r\n")))
        else:
            self._pending[source] = text


def show(line: Line, tag: str | None = None) -> bool:
    """Prints a line of a job where it belongs, unless it is noise.

    Args:
        line: what to print.
        tag: what stands in front; None: the rank, but of rank 0's output.

    Returns:
        Whether the line was printed.
    """
    is_error = line.stream == "stderr"
    if is_error and (is_noise(line.text) or not line.text.strip()):
        return False
    if tag is None:
        tag = "" if line.rank is None or not (line.rank or is_error) else f"[{line.rank}] "
    print(f"{tag}{line.text}", file=sys.stderr if is_error else sys.stdout, flush=True)
    return True


def environment(extra: Mapping[str, str] | None = None) -> dict[str, str]:
    """Returns the environment of a job: the user's, with `PINNED` where the user set nothing."""
    return PINNED | dict(os.environ) | dict(extra or {})


def sharing(np: int, gloo: bool = False) -> dict[str, str]:
    """Returns what lets `np` ranks share this machine's cores without taking them by waiting.

    MPI's ranks sleep while they wait, instead of polling. Where there are more ranks than cores,
    Horovod looks for work every 5 ms, not every 1 ms, unless the user set HOROVOD_CYCLE_TIME.

    Args:
        np: how many ranks.
        gloo: whether they communicate with Gloo, which does not poll.
    """
    found = {}
    if not gloo:
        preloaded = [str(mpi_yield_path()), *filter(None, [os.environ.get("LD_PRELOAD")])]
        found["LD_PRELOAD"] = ":".join(preloaded)
    if np > len(os.sched_getaffinity(0)):
        found["HOROVOD_CYCLE_TIME"] = os.environ.get("HOROVOD_CYCLE_TIME", "5")
    return found


def horovodrun() -> str:
    """Returns the path of the horovodrun that belongs to this Python.

    Raises:
        FileNotFoundError: there is none; the message says how to get it.
    """
    beside = Path(sys.executable).parent / "horovodrun"
    found = str(beside) if beside.exists() else shutil.which("horovodrun")
    if found is None:
        raise FileNotFoundError(
            f"horovodrun is neither beside {sys.executable} nor on the PATH. Build Horovod with "
            "`make setup`."
        )
    return found


def launch(
    np: int,
    command: Sequence[str],
    *,
    gloo: bool = False,
    env: Mapping[str, str] | None = None,
    on_line: Callable[[Line], Any] = show,
    timeout: float | None = None,
) -> Outcome:
    """Runs a command on `np` processes of this machine and waits for them.

    Args:
        np: how many processes.
        command: program and arguments; begin with `sys.executable` for a Python program.
        gloo: communicate with Gloo; by default with MPI.
        env: environment variables on top of `environment()`.
        on_line: called with each line, as it comes, one at a time; a false answer means that the
            line was not shown, and it will be if the job fails.
        timeout: seconds after which the job is stopped; None waits for ever.

    Raises:
        FileNotFoundError: there is no horovodrun.
        JobError: the job took longer than `timeout`.
    """
    controller = ["--gloo", "--network-interfaces", "lo"] if gloo else ["--mpi"]
    return supervise(
        [horovodrun(), "-np", str(np), *controller, *command],
        env=environment(env),
        on_line=on_line,
        timeout=timeout,
    )


def supervise(
    launcher: Sequence[str],
    *,
    env: Mapping[str, str],
    on_line: Callable[[Line], Any] = show,
    timeout: float | None = None,
    keep: int = sys.maxsize,
) -> Outcome:
    """Runs a launcher, horovodrun or mpirun with its arguments, and waits for its job.

    Args:
        launcher: program and arguments; an mpirun must be told to tag its output.
        env: all environment variables.
        on_line: see `launch`.
        timeout: see `launch`.
        keep: lines of the outcome, the last ones; by default all, for jobs that end soon.

    Raises:
        JobError: the job took longer than `timeout`.
    """
    outcome = Outcome(exit_code=0)
    hidden: list[Line] = []
    lock = threading.Lock()  # guards outcome.lines and hidden, and makes on_line's calls take turns

    def take(line: Line) -> None:
        with lock:
            outcome.lines.append(line)
            if not on_line(line):
                hidden.append(line)
            del outcome.lines[:-keep], hidden[:-keep]

    with Interrupts() as interrupts:
        job = subprocess.Popen(
            launcher,
            env=env,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
            start_new_session=True,  # horovodrun turns into a shell around mpirun: stop them as one
        )
        readers = [
            threading.Thread(target=_read, args=(pipe, _Untagger(name, take)), daemon=True)
            for pipe, name in ((job.stdout, "stdout"), (job.stderr, "stderr"))
        ]
        for reader in readers:
            reader.start()
        try:
            interrupts.raise_from_now_on(job)
            outcome.exit_code = job.wait(timeout)
        except subprocess.TimeoutExpired as error:
            _stop(job, readers)
            raise JobError(
                f"{' '.join(launcher)}: stopped after {timeout:g} seconds. "
                f"It printed:\n{outcome.text()}"
            ) from error
        except BaseException:
            _stop(job, readers)
            raise
    _join(readers)
    if outcome.exit_code and on_line is show and hidden:
        print(f"horovodrun exited with {outcome.exit_code}. It also printed:", file=sys.stderr)
        for line in hidden:
            print(line, file=sys.stderr)
    return outcome


def _read(pipe: IO[str], untagger: _Untagger) -> None:
    for text in pipe:
        untagger.feed(text)
    untagger.close()


def _join(readers: Sequence[threading.Thread]) -> None:
    for reader in readers:
        reader.join(_STOP_SECONDS)


def _stop(job: subprocess.Popen[str], readers: Sequence[threading.Thread]) -> None:
    """Ends a job: horovodrun, or the shell and the mpirun that it has become, end the workers."""
    kill_group(job, signal.SIGTERM)
    try:
        job.wait(_STOP_SECONDS)
    except subprocess.TimeoutExpired:
        kill_group(job, signal.SIGKILL)
        job.wait()
    _join(readers)  # the last worker to go closes the pipes

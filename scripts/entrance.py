"""The one entrance of all commands: how they end, and how they take options and show results.

What goes wrong for the user is one line on the error stream that says what to do, and an exit code.
What goes wrong in trepak itself keeps its traceback.
"""

from __future__ import annotations

import argparse
import contextlib
import errno
import io
import math
import os
import sys
from collections.abc import Callable
from typing import Any, NoReturn

from trepak.scripts.errors import InputError, UserError, printable

INTERRUPTED = 130  # exit codes: 128 and the number of SIGINT
_PIPE_CLOSED = 141  # and of SIGPIPE
MOST_PROCESSES = 1024  # of one job
_REMEDIES = {
    errno.ENOENT: "check the path",
    errno.ENOTDIR: "check the path",
    errno.EISDIR: "name a file",
    errno.EACCES: "choose another one, or run this as a user who may",
    errno.EPERM: "choose another one, or run this as a user who may",
    errno.EROFS: "choose another place",
    errno.ENAMETOOLONG: "choose a shorter one",
    errno.ENOSPC: "make room, or choose another place",
}


class Parser(argparse.ArgumentParser):
    """Explains wrong usage in one line; parsers of subcommands do so too."""

    def error(self, message: str) -> NoReturn:
        """Raises InputError."""
        raise InputError(f"{message.rstrip('.')} (`{self.prog} --help` shows how)")

    def _print_message(self, message: str, file: Any = None) -> None:
        (file or sys.stdout).write(message)  # argparse's own hides that this fails


def value(parse: Callable[[str], Any]) -> Callable[[str], Any]:
    """Returns a function for `add_argument(type=)` that explains what is wrong with a value.

    Args:
        parse: returns the value of an option; raises ValueError with the explanation.
    """

    def explained(text: str) -> Any:
        try:
            return parse(text)
        except ValueError as error:
            raise argparse.ArgumentTypeError(str(error)) from error

    return explained


def whole_number(least: int, most: int) -> Callable[[str], int]:
    """Returns the type of options that are whole numbers within bounds."""

    def parse(text: str) -> int:
        digits = text.strip().removeprefix("-")
        fits = digits.isascii() and digits.isdigit() and len(digits) <= 20
        if not fits or not least <= int(text) <= most:
            raise ValueError(f"must be a whole number from {least} to {most}, found {text!r}.")
        return int(text)

    return value(parse)


def seconds(text: str) -> float:
    """Returns seconds, of an option.

    Raises:
        argparse.ArgumentTypeError: it is no positive number.
    """
    with contextlib.suppress(ValueError):
        found = float(text)
        if 0 < found < math.inf:
            return found
    raise argparse.ArgumentTypeError(f"must be a positive number of seconds, found {text!r}.")


def console(stderr: bool = False) -> Any:
    """Returns a rich console that shows texts as they are: what users name is no markup."""
    from rich.console import Console

    class Plain(Console):
        def on_broken_pipe(self) -> None:
            raise BrokenPipeError  # which `run_command` explains

    return Plain(markup=False, emoji=False, stderr=stderr)


def table_of(title: str, *columns: str) -> Any:
    """Returns a rich table with a title above, and columns."""
    from rich import box
    from rich.table import Table

    return Table(
        *columns, title=title, title_justify="left", title_style="bold", box=box.SIMPLE_HEAD
    )


def run_command(command: Callable[[], int | None]) -> int:
    """Runs a command and returns its exit code; explains in one line why it failed.

    Args:
        command: returns an exit code, None for 0, or raises SystemExit.

    Raises:
        Exception: any but `UserError`, errors of the operating system, and packages that are
            missing; it is a mistake in trepak.
    """
    if sys.stdout is None:
        return _explain("standard output is closed: send it to a file, or to /dev/null", 1)
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")  # a name may hold any bytes
    try:
        status = _exit_code(command)
        sys.stdout.flush()
        return status
    except BrokenPipeError:
        return _explain("standard output was closed before all was written", _PIPE_CLOSED)
    except KeyboardInterrupt:
        return _explain("interrupted", INTERRUPTED)
    except UserError as error:
        text = str(error) if error.with_output else printable(str(error))
        return _explain(text, error.exit_code)
    except OSError as error:
        return _explain(printable(_of_system(error)), 1)
    except MemoryError:
        return _explain("there is not enough memory: give it less, or use a larger machine", 1)
    except ImportError as error:
        if (error.name or "").partition(".")[0] == "trepak":
            raise
        return _explain(printable(f"{error}; `trepak doctor` shows what is installed"), 1)


def _exit_code(command: Callable[[], int | None]) -> int:
    try:
        return command() or 0
    except SystemExit as end:  # of argparse, after --help
        if isinstance(end.code, str):
            raise UserError(end.code) from end
        return end.code or 0


def _of_system(error: OSError) -> str:
    """Returns what the operating system refused, and to what."""
    if error.strerror is None:
        return str(error)
    names = [os.fsdecode(name) for name in (error.filename, error.filename2) if name is not None]
    remedy = _REMEDIES.get(error.errno or 0)
    where, what = f"{' and '.join(names)}: " if names else "", error.strerror
    return f"{where}{what}: {remedy}" if remedy else f"{where}{what}"


def _explain(text: str, status: int) -> int:
    if status:
        _discard_output()
    with contextlib.suppress(OSError, ValueError, AttributeError):  # no error stream: nobody reads
        ended = text if text.endswith((".", "?", "!")) or "\n" in text else f"{text}."
        print(f"trepak: {ended}", file=sys.stderr, flush=True)
    return status


def _discard_output() -> None:
    """Writes what is left of the output, or else sees to it that nobody tries again."""
    if sys.stdout is None:
        return
    try:
        sys.stdout.flush()
    except (OSError, ValueError):
        with contextlib.suppress(OSError, ValueError):  # a test's stream has no descriptor
            null = os.open(os.devnull, os.O_WRONLY)
            os.dup2(null, sys.stdout.fileno())
            os.close(null)

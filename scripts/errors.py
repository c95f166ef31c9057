"""What a command can't do for its user, as errors that `entrance.run_command` shows in one line.

Everything else that is raised is a mistake in trepak, and keeps its traceback.
"""

from __future__ import annotations

import contextlib
import json
import stat
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

_UNPRINTABLE = "\N{REPLACEMENT CHARACTER}"
MOST_BYTES = 2 << 30  # of a file that is read at once


class UserError(RuntimeError):
    """A command can't do what it shall; the message says why, and what to do.

    Attributes:
        exit_code: the command's.
        with_output: whether the message ends with lines that another program printed.
    """

    exit_code = 1
    with_output = False


class InputError(UserError, ValueError):
    """What the user gave can't be used: an option, a file, an address."""

    exit_code = 2


# What code raises that parses something else than it expects.
_UNFIT = (
    ValueError,
    LookupError,
    TypeError,
    AttributeError,
    OverflowError,
    RecursionError,
    EOFError,
    zlib.error,
)


@contextlib.contextmanager
def reading(source: object, wanted: str, remedy: str = "") -> Iterator[None]:
    """Makes what parsing raises an error that names the source; for short blocks that only parse.

    Args:
        source: whence the content comes: a path, an address.
        wanted: what it should be, with its article.
        remedy: a sentence that says what to do.

    Raises:
        InputError: the block raised what content raises that is something else.
    """
    try:
        yield
    except InputError:
        raise
    except _UNFIT as error:
        reason = str(error) if isinstance(error, ValueError) else f"{type(error).__name__}: {error}"
        raise InputError(f"{source} is not {wanted}: {reason}. {remedy}".rstrip()) from error


def check_regular(path: Path, most_bytes: int = MOST_BYTES) -> None:
    """Checks that a path is a file that can be read to its end, and is not too long.

    Raises:
        InputError: it is no regular file, or longer than that.
        OSError: it is not there.
    """
    found = path.stat()
    if stat.S_ISDIR(found.st_mode):
        raise InputError(f"{path} is a folder; a file is needed.")
    if not stat.S_ISREG(found.st_mode):
        raise InputError(f"{path} is not a regular file.")
    if found.st_size > most_bytes:
        raise InputError(
            f"{path} has {found.st_size:,} bytes; no more than {most_bytes:,} can be read."
        )


def read_json(path: Path, most_bytes: int, wanted: str, remedy: str = "") -> Any:
    """Returns the content of a JSON file.

    Args:
        path: the file.
        most_bytes: it may have.
        wanted: what the file should be; see `reading`.
        remedy: see `reading`.

    Raises:
        InputError: it is no JSON, no regular file, or too long.
        OSError: it cannot be read.
    """
    check_regular(path, most_bytes)
    with reading(path, wanted, remedy):
        return json.loads(path.read_text())


def check_writable(path: Path | None) -> None:
    """Makes the folder of a file that will be written, and tries to write there; None is fine.

    For commands that would find out after hours.

    Raises:
        OSError: it cannot be written.
    """
    if path is None:
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    existed = path.exists()
    with path.open("ab"):
        pass
    if not existed:
        path.unlink()


def printable(text: str) -> str:
    """Returns a text on one line, without what would command the terminal."""
    line = text.replace("\n", " ")
    return "".join(letter if letter.isprintable() else _UNPRINTABLE for letter in line)

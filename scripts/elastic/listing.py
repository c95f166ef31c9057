"""The hosts that there are: what the user's script prints, or what stands in the user's file."""

from __future__ import annotations

import os
import re
import signal
import subprocess
from pathlib import Path

from trepak.scripts.entrance import MOST_PROCESSES
from trepak.scripts.errors import InputError, check_regular, printable
from trepak.scripts.interrupts import kill_group

MOST_BYTES = 1 << 20
SCRIPT_SECONDS = 20.0
_NAME = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?")


def read(path: Path, seconds: float = SCRIPT_SECONDS) -> dict[str, int]:
    """Returns the hosts that a script or a file lists now, with the slots of each, in its order.

    Args:
        path: a program, which prints the list; or a text file.
        seconds: that the program may take.

    Raises:
        InputError: the program fails or takes too long, or what it lists is no list of hosts.
        OSError: there is no such file.
    """
    check_regular(path)
    if not os.access(path, os.X_OK):
        check_regular(path, MOST_BYTES)
        return parse(path.read_text(errors="replace"), str(path))
    return parse(_printed(path, seconds), f"{path}'s output")


def _printed(path: Path, seconds: float) -> str:
    """Returns what a program prints, and ends it with all it has started if that takes too long."""
    program = subprocess.Popen(
        [path.resolve()],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        errors="replace",
        start_new_session=True,
    )
    try:
        output, said = program.communicate(timeout=seconds)
    except subprocess.TimeoutExpired:
        raise InputError(f"{path} took longer than {seconds:g} s") from None
    finally:
        if program.returncode is None:
            kill_group(program, signal.SIGKILL)
            program.wait()
    if program.returncode:
        last = printable((said.strip().splitlines() or ["it printed no error"])[-1])
        raise InputError(f"{path} failed with exit code {program.returncode}: {last}")
    return output


def parse(text: str, source: str) -> dict[str, int]:
    """Returns the hosts of a text with one `name:slots` a line; empty lines and # are left out.

    Args:
        text: the lines.
        source: whence it comes, for messages.

    Raises:
        InputError: a line is something else, or names a host again.
    """
    found: dict[str, int] = {}
    if len(text) > MOST_BYTES:
        raise InputError(f"{source} is longer than {MOST_BYTES:,} characters")
    for number, line in enumerate(text.splitlines(), 1):
        entry = line.partition("#")[0].strip()
        if not entry:
            continue
        name, _, slots = entry.partition(":")
        fits = slots.isascii() and slots.isdigit() and 0 < int(slots[:5]) <= MOST_PROCESSES
        if not _NAME.fullmatch(name) or not fits:
            raise InputError(
                f"line {number} of {source} must be name:slots, with 1 to {MOST_PROCESSES} slots; "
                f"it is {printable(entry[:80])!r}"
            )
        if name in found:
            raise InputError(f"line {number} of {source} lists {name} again")
        found[name] = int(slots)
    return found

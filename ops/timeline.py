"""This process's timeline: a Chrome trace of its steps, its accelerator and its program."""

from __future__ import annotations

import json
import re
from typing import Any

from trepak.ops.loader import call

__all__ = ["add_span", "close_timeline", "open_timeline", "parse_steps"]


def parse_steps(text: str) -> tuple[int, int | None]:
    """Returns the first step and the one before which a window ends, for text such as "10:20".

    Either side may be empty: the first step, or no end.

    Raises:
        ValueError: it is no window.
    """
    match = re.fullmatch(r"(\d*):(\d*)", text)
    first, end = (int(match[1] or 0), int(match[2]) if match[2] else None) if match else (0, 0)
    if end is not None and end <= first:
        raise ValueError(
            f"{text!r} is not a window of steps; write it like 10:20, for steps 10 to 19."
        )
    return first, end


def open_timeline(
    path: str,
    rank: int,
    title: str,
    about: dict[str, Any],
    first_step: int = 0,
    end_step: int | None = None,
) -> None:
    """Begins to write a file; one that is open is closed.

    Args:
        path: the file.
        rank: this process's.
        title: what the process is called in the picture.
        about: what `trepak trace merge` has to know of this process.
        first_step: the first step that is kept.
        end_step: the step before which keeping ends; None keeps all.

    Raises:
        tf.errors.UnavailableError: the file cannot be opened, or the one before be written.
    """
    call(
        "open_timeline",
        path=path,
        rank=rank,
        title=title,
        about=json.dumps(about),
        first_step=first_step,
        end_step=-1 if end_step is None else end_step,
    )


def add_span(name: str, begin: float, end: float) -> None:
    """Adds what the program did, to the steps that are kept.

    Args:
        name: what is shown.
        begin: seconds, as `time.monotonic()` tells them.
        end: the same.
    """
    call("add_span", label=name, begin=round(begin * 1e9), end=round(end * 1e9))


def close_timeline() -> None:
    """Ends the file, if one is open.

    Raises:
        tf.errors.UnavailableError: not all could be written; the message names file and rank.
    """
    call("close_timeline")

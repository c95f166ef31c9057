"""The options of what ranks of elastic jobs keep for each other."""

from __future__ import annotations

import numbers
from typing import Any

_NUMBER: Any = numbers.Real


def check_commits(commit_seconds: Any, replicas: Any) -> None:
    """Checks what `trepak.chicle.train` and others take under these names.

    Raises:
        TypeError: they are of another type.
        ValueError: `commit_seconds` is negative.
    """
    if isinstance(commit_seconds, bool) or not isinstance(commit_seconds, _NUMBER):
        raise TypeError(f"commit_seconds must be a number, got {commit_seconds!r}.")
    if not commit_seconds >= 0:
        raise ValueError(f"commit_seconds must be at least 0, got {commit_seconds!r}.")
    if replicas not in (True, False):
        raise TypeError(f"replicas must be True or False, got {replicas!r}.")

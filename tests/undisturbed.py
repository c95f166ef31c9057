"""Measurements that a busy machine can spoil."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

Figures = TypeVar("Figures")


def undisturbed(
    measure: Callable[[], Figures], good: Callable[[Figures], bool], seconds: float = 60
) -> Figures:
    """Returns the first figures that are good; after some seconds the last ones, good or not.

    A virtual machine stands still while its host runs others, for seconds or minutes. What it
    measures can be disturbed for a while, but what is built wrong is never good.
    """
    deadline = time.monotonic() + seconds
    while True:
        figures = measure()
        if good(figures) or time.monotonic() > deadline:
            return figures

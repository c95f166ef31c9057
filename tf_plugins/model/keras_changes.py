"""The one way to change a method of Keras' own classes, for all models: with a reason, on record.

A hook (`model_hooks`) changes one model, and is to be preferred.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class KerasChange:
    """A change.

    Attributes:
        owner: Keras' class.
        method: its method.
        why: what Keras does that makes it necessary.
        seen: the version of Keras in which that was seen.
    """

    owner: type
    method: str
    why: str
    seen: str


CHANGES: list[KerasChange] = []  # that were made in this process


def change(
    owner: type,
    method: str,
    wrap: Callable[[Callable[..., Any]], Callable[..., Any]],
    why: str,
    seen: str = "3.15.1",
) -> None:
    """Has what `wrap` makes of a method stand in for it; see `KerasChange`."""
    plain = getattr(owner, method)
    setattr(owner, method, functools.wraps(plain)(wrap(plain)))
    CHANGES.append(KerasChange(owner, method, why, seen))

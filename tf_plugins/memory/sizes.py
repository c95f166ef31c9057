"""Sizes of memory as people write them: "1GiB"."""

from __future__ import annotations

import re

_UNITS = {"B": 1, **{f"{letter}iB": 1 << 10 * (k + 1) for k, letter in enumerate("KMGT")}}
_UNITS |= {f"{letter}B": 1000 ** (k + 1) for k, letter in enumerate("KMGT")}
_SIZE = re.compile(r"\s*([0-9]+(?:\.[0-9]+)?)\s*([A-Za-z]*)\s*")


def is_size(text: str) -> bool:
    """Returns whether a text is meant as a size, and not as the name of a folder."""
    return _SIZE.fullmatch(text) is not None


def bytes_of(size: int | str, name: str) -> int:
    """Returns the bytes of a size.

    Args:
        size: a number of bytes, or text such as "512MiB", "1.5GB".
        name: of the argument, for errors.

    Raises:
        ValueError: it is no size, or not above 0.
    """
    if isinstance(size, str):
        match = _SIZE.fullmatch(size)
        unit = _UNITS.get(match[2] or "B") if match else None
        if match is None or unit is None:
            raise ValueError(
                f"{name}={size!r} is no size: write a number and one of {', '.join(_UNITS)}, such "
                'as "512MiB".'
            )
        size = int(float(match[1]) * unit)
    if isinstance(size, bool) or not isinstance(size, int) or size <= 0:
        raise ValueError(f"{name}={size!r} must be a number of bytes above 0, or text with a unit.")
    return size

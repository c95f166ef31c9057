"""Sizes of memory as people write them: "1GiB"."""

from __future__ import annotations

import os
import re
from pathlib import Path

_UNITS = {"B": 1, **{f"{letter}iB": 1 << 10 * (k + 1) for k, letter in enumerate("KMGT")}}
_UNITS |= {f"{letter}B": 1000 ** (k + 1) for k, letter in enumerate("KMGT")}
_LOCAL_SIZES = ("OMPI_COMM_WORLD_LOCAL_SIZE", "HOROVOD_LOCAL_SIZE")
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


def memory_share(root: Path = Path("/")) -> int:
    """Returns the bytes of memory that this process may count on.

    They are what the machine has available, or the limit of the process's control group if that is
    less, shared with the other ranks on the machine if a launcher has started it.

    Args:
        root: where the system's files are; for tests.
    """
    groups = root / "sys/fs/cgroup"
    available = re.search(r"MemAvailable:\s*([0-9]+) kB", (root / "proc/meminfo").read_text())
    limits = [int(available[1]) * 1024] if available else []
    for line in (root / "proc/self/cgroup").read_text().splitlines():
        _, controllers, group = line.split(":", 2)
        if controllers == "":
            limits += _limits(groups, group, "memory.max")
        elif "memory" in controllers.split(","):
            limits += _limits(groups / "memory", group, "memory.limit_in_bytes")
    ranks = max([1, *(int(os.environ[name]) for name in _LOCAL_SIZES if name in os.environ)])
    return min(limits) // ranks


def _limits(root: Path, group: str, name: str) -> list[int]:
    """Of the group and all above it. In a container, its own group is the root of what is seen."""
    folder = root / group.lstrip("/")
    files = [at / name for at in (folder, *folder.parents) if (at / name).is_file()]
    texts = [file.read_text().strip() for file in files]
    return [int(text) for text in texts if text != "max"]

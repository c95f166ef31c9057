"""How fast accelerators compute: one data file for each."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

_FOLDER = Path(__file__).parent


@dataclass(frozen=True)
class Profile:
    """An accelerator, as far as emulation knows it.

    Attributes:
        name: the product.
        peak_tflops: what it could do, in 10¹² floating point operations per second.
        efficiency: the share of the peak that training a network reaches.
        source: where both numbers come from.
    """

    name: str
    peak_tflops: float
    efficiency: float
    source: str

    def milliseconds(self, operations: float) -> float:
        """Returns how long it takes for a number of floating point operations."""
        return operations / (self.peak_tflops * self.efficiency * 1e9)


def names() -> list[str]:
    """Returns the names of all profiles."""
    return sorted(file.stem for file in _FOLDER.glob("*.json"))


def load(name: str) -> Profile:
    """Reads a profile.

    Raises:
        ValueError: there is none of that name; the message lists those that exist.
    """
    if name not in names():
        raise ValueError(f"there is no profile {name!r}; there are: {', '.join(names())}.")
    return Profile(**json.loads((_FOLDER / f"{name}.json").read_text()))

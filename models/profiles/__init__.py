"""How fast accelerators compute: one data file for each."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

SATURATED = 0.95  # of the greatest throughput, that a layer has at its threshold batch size

_FOLDER = Path(__file__).parent


@dataclass(frozen=True)
class Profile:
    """An accelerator, as far as emulation knows it.

    Attributes:
        name: the product.
        peak_tflops: what it could do, in 10¹² floating point operations per second.
        efficiency: the share of the peak that training a network reaches.
        source: where the numbers come from.
        thresholds: by kind of layer ("conv", "dense") and the width of its input, the batch size
            from which on more samples hardly make it faster.
    """

    name: str
    peak_tflops: float
    efficiency: float
    source: str
    thresholds: Mapping[str, Mapping[str, int]] = field(default_factory=dict)

    def milliseconds(self, operations: float) -> float:
        """Returns how long it takes for a number of floating point operations."""
        return operations / (self.peak_tflops * self.efficiency * 1e9)

    def threshold(self, kind: str, width: int) -> int:
        """Returns a layer's threshold batch size.

        Raises:
            ValueError: it is not known.
        """
        known = self.thresholds.get(kind, {})
        if str(width) not in known:
            raise ValueError(
                f"the profile of the {self.name} has no threshold batch size of {kind!r} for a "
                f"width of {width}; it has those of {', '.join(known) or 'none'}."
            )
        return known[str(width)]

    def overhead(self, kind: str, width: int) -> float:
        """Returns how many samples' time a batch takes on top.

        A batch takes (samples + overhead) · time of a sample: a fixed part, in which kernels start
        and weights are read, and one for each sample. So throughput grows evenly at first, bends,
        and has `SATURATED` of its greatest at the threshold batch size.
        """
        return (1 / SATURATED - 1) * self.threshold(kind, width)


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

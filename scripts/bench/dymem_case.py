"""What a process of `trepak bench dymem` trains."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal


@dataclass(frozen=True)
class Case:
    """A training.

    Attributes:
        network: "resnet50" or "inception_v4".
        size: height and width of the images.
        way: "plain"; "remat": blocks compute anew; "predict": a replay instead of a training.
        batches: that are tried, one after the other.
        dymem: arguments of `trepak.Dymem`; None: TensorFlow's own allocator.
        steps: of each batch that are measured, after a first one.
        turns: the process takes its steps when it is told to.
        link: bytes per second of the emulated link, for "predict".
    """

    network: Literal["resnet50", "inception_v4"]
    size: int
    way: Literal["plain", "remat", "predict"]
    batches: tuple[int, ...]
    dymem: Mapping[str, Any] | None = None
    steps: int = 3
    turns: bool = False
    link: float = 0.0

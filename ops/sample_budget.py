"""How many samples all ranks have taken together."""

from __future__ import annotations

from typing import Any

from trepak.ops.loader import load

__all__ = ["count_dealt", "deal", "end_of_epoch", "epoch_goes_on"]


def end_of_epoch(dataset: int, samples: int) -> Any:
    """Returns where an epoch that begins now ends; int64, [].

    Args:
        dataset: its number, from 1. An epoch has what its dataset's epoch before had too many.
        samples: of the epoch.
    """
    return load().trepak_end_of_epoch(dataset=dataset, samples=samples)


def epoch_goes_on(end: Any) -> Any:
    """Says whether the ranks have not yet taken so many samples together; bool, [].

    Args:
        end: what `end_of_epoch` returned.
    """
    return load().trepak_epoch_goes_on(end)


def count_dealt() -> Any:
    """Counts what this rank was dealt: for a job of one rank, which has no rounds."""
    return load().trepak_count_dealt()


def deal(samples: Any) -> Any:
    """Says that this rank was given so many samples, of which it will make a gradient.

    Args:
        samples: int64, [].
    """
    return load().trepak_deal(samples)

"""Groups of ranks that RNA keeps apart: who belongs together, and Horovod's sets of them."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence

from trepak.horovod_ext import basics, process_sets

Groups = Sequence[Sequence[int]]


def split(times: Mapping[int, float]) -> list[list[int]]:
    """Returns the groups of ranks whose times are alike (thesis, section 5.2).

    While the slowest of a group takes longer than the fastest by more than the group's mean, the
    ranks above the mean and the others become groups of their own.

    Args:
        times: by rank, seconds that a step takes.
    """
    mean = sum(times.values()) / len(times)
    if max(times.values()) - min(times.values()) <= mean:
        return [sorted(times)]
    slow = {rank: time for rank, time in times.items() if time > mean}
    fast = {rank: time for rank, time in times.items() if time <= mean}
    return split(fast) + split(slow)


def check(groups: Groups, size: int) -> list[list[int]]:
    """Returns groups as lists, each in order.

    Raises:
        ValueError: a rank is in none or in several of them, or there is no such rank.
    """
    ranks = sorted(rank for group in groups for rank in group)
    if ranks != list(range(size)) or not all(groups):
        raise ValueError(
            f"groups must have each of this job's ranks, 0 to {size - 1}, in one of them, got "
            f"{[list(group) for group in groups]}."
        )
    return [sorted(group) for group in groups]


def check_that_sets_can_be_added() -> None:
    """Raises ValueError if Horovod was not started for process sets that come later."""
    if not int(os.environ.get("HOROVOD_DYNAMIC_PROCESS_SETS", "0")):
        raise ValueError(
            "groups that are found while training are process sets that Horovod does not know when "
            'it starts: call hvd.init(process_sets="dynamic").'
        )


def process_set(groups: Groups, size: int) -> int:
    """Returns the number of Horovod's process set of this rank's group; a collective call.

    Raises:
        ValueError: Horovod was started without them.
    """
    mine = 0
    for group in groups:
        found = process_sets.process_set_of(sorted(group), size, "a group of RNA")
        mine = found.process_set_id if basics.rank() in group else mine
    return mine

"""Horovod's process sets, found by their ranks or added."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import horovod.tensorflow as _hvd
from horovod.tensorflow import mpi_ops as _mpi_ops


def process_set_of(ranks: Sequence[int], size: int, what: str) -> Any:
    """Returns the process set of some ranks; a collective call of all ranks.

    Args:
        ranks: in order.
        size: of the job: the set of all ranks is always there.
        what: the ranks are to users, such as "a group of RNA".

    Raises:
        ValueError: there is no such set, and Horovod was started so that none can be added.
    """
    if len(ranks) == size:
        return _hvd.global_process_set
    known: dict[int, list[int]] = _mpi_ops._basics._get_process_set_ids_and_ranks()
    for number, members in known.items():
        if sorted(members) == list(ranks):
            found = _hvd.ProcessSet(members)
            found.process_set_id = number
            return found
    try:
        return _hvd.add_process_set(list(ranks))
    except ValueError as error:
        raise ValueError(
            f"{what} is a process set of Horovod's, and {list(ranks)} is none: call hvd.init("
            'process_sets=[hvd.ProcessSet(ranks), …]) with all of them, or hvd.init(process_sets="'
            'dynamic") for sets that are found while training.'
        ) from error

"""The same partition on all ranks, whose machines measure different thresholds."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from trepak.horovod_ext import basics, exchange
from trepak.tf_plugins.fela.partition import Partition, partition
from trepak.tf_plugins.fela.profile import of_this_machine


def agreed_partition(
    model: Any, cuts: str | int | Sequence[str], bin_size: int, profile: Path | None
) -> Partition:
    """Cuts a model; a collective call if the cuts are not given: rank 0 makes them for all.

    Args:
        model: see `partition`.
        cuts: see `partition`.
        bin_size: see `partition`.
        profile: the file that has, and gets, rank 0's thresholds; None: this machine's own.

    Raises:
        TypeError: see `partition`.
        ValueError: see `partition`; what fails on rank 0 fails on all.
    """
    alone = not basics.is_initialized() or basics.size() == 1
    if alone or not _measures(cuts, profile):
        return _made(model, cuts, bin_size, profile)
    mine: Partition | Exception | None = None
    if basics.rank() == 0:
        try:
            mine = _made(model, cuts, bin_size, profile)
        except Exception as error:  # that the others are told of
            mine = error
    told = exchange.gather(_told(mine), "Fela's cuts")[0]
    if isinstance(mine, Exception):
        raise mine
    if "error" in told:
        raise ValueError(f"rank 0 could not cut the model: {told['error']}")
    if mine is not None:
        return mine
    same = partition(model, told["cuts"])
    return dataclasses.replace(same, thresholds=tuple(told["thresholds"]))


def _made(model: Any, cuts: Any, bin_size: int, profile: Path | None) -> Partition:
    measured = of_this_machine(profile) if _measures(cuts, profile) else None
    return partition(model, cuts, bin_size, measured)


def _measures(cuts: Any, profile: Path | None) -> bool:
    return isinstance(cuts, int) or cuts == "auto" or profile is not None


def _told(mine: Partition | Exception | None) -> dict[str, Any]:
    if isinstance(mine, Exception):
        return {"error": f"{type(mine).__name__}: {mine}"}
    if mine is None:
        return {}
    return {"cuts": list(mine.cuts), "thresholds": list(mine.thresholds or ())}

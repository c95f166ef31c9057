"""What all ranks must have alike before they train by tokens: the partition, and the rules."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from trepak.horovod_ext import basics, exchange
from trepak.horovod_ext.agreement import Fact, Values, check_alike
from trepak.tf_plugins.fela.partition import Partition, partition, partition_at
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
        ValueError: see `partition`; what fails on rank 0 fails on all. Or Horovod was not
            initialized, or the job is elastic and the cuts are not given.
    """
    measures = _measures(cuts, profile)
    if measures and basics.is_elastic():
        raise ValueError(
            "in an elastic job Fela can't measure where to cut, since ranks that join later could "
            "not take part: give partition the names of layers to cut after, such as "
            "fela.partition.cuts of a job that is not elastic, and leave profile out."
        )
    if basics.size() == 1 or not measures:
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
    return partition_at(model, told["places"], told["thresholds"])


def agreed_beginning(
    samples: int, iterations: int, is_stuck: bool, facts: Sequence[Fact]
) -> tuple[list[int], int]:
    """Returns each rank's samples of an iteration, and the number of the first one of a session.

    A collective call. That number is rank 0's, which has taken part in all iterations before.

    Args:
        samples: of this rank's batch.
        iterations: that this rank has taken part in.
        is_stuck: whether sums of an iteration that failed are still under way here.
        facts: what all ranks must have alike.

    Raises:
        ValueError: on all ranks, if one has another of these; names it and the ranks.
        RuntimeError: on all ranks, if one is stuck: the next sums would meet those under way.
    """
    check_alike(facts, Values(), "when Fela's session opens")
    told = exchange.gather([samples, iterations, is_stuck], "Fela's batches")
    stuck = [rank for rank, one in enumerate(told) if one[2]]
    if stuck:
        raise RuntimeError(
            f"an iteration of Fela failed while ranks {stuck} summed gradients, and Horovod "
            "still waits for the others: call hvd.shutdown() and hvd.init() on all ranks "
            "before training goes on."
        )
    return [one[0] for one in told], told[0][1]


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
    return {"places": list(mine.places), "thresholds": list(mine.thresholds or ())}

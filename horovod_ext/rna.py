"""RNA's rounds: started for one optimizer on all ranks together, and ended with the job."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from trepak.horovod_ext import basics, exchange, flows, parameter_server, rna_groups
from trepak.horovod_ext.rna_groups import Groups
from trepak.ops import rna as native
from trepak.ops.streams import connect_stream, stop_stream


@dataclass(frozen=True)
class RoundOptions:
    """When rounds start and what goes into them; the same on all ranks.

    Attributes:
        staleness: gradients that are more rounds stale are dropped.
        choices: ranks that are probed per round.
        quorum: answers that start it, or all of a smaller group that was found while training.
        seed: of the draws.
        sums: several gradients of a rank are added up; otherwise their mean is taken, weighted by
            how new they are.
        aligned: a rank's step belongs to the round of its number: a probed rank answers when it has
            come to it, and a step that waits, waits for its end.
        period: rounds from one exchange of groups to the next.
    """

    staleness: int
    choices: int = 2
    quorum: int = 1
    seed: int = 0
    sums: bool = False
    aligned: bool = False
    period: int = 4

    def __post_init__(self) -> None:
        """Raises ValueError for options that are wrong."""
        for name in ("choices", "quorum", "period"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1, got {getattr(self, name)}.")
        if self.staleness < 0:
            raise ValueError(f"staleness must not be negative, got {self.staleness}.")


def start(
    options: RoundOptions, dtype: Any, shapes: Sequence[Any], groups: Groups | None = None
) -> int:
    """Starts rounds for one optimizer; a collective call.

    Args:
        options: the same on all ranks.
        dtype: of the gradients, float32 or float64.
        shapes: of the gradients.
        groups: ranks that have rounds of their own, and exchange parameters with other groups; each
            rank is in one of them. None: all ranks have the same rounds.

    Returns:
        The number by which these rounds are known.

    Raises:
        ValueError: more answers are wanted than there are ranks, the job is elastic, or Horovod has
            no such groups.
        HorovodInternalError: a rank did not answer in time, or has left.
    """
    basics.reject_elastic("training in which each rank goes at its own pace")
    smallest = min(map(len, groups)) if groups is not None else basics.size()
    if options.quorum > smallest:
        raise ValueError(f"quorum={options.quorum} answers can't come from {smallest} ranks.")
    if groups is not None:
        parameter_server.start(parameter_server.ServerOptions())
    stream = flows.begin_stream("rna")
    _start(stream, options, dtype, shapes, groups)
    return stream


def regroup(
    stream: int, options: RoundOptions, dtype: Any, shapes: Sequence[Any], groups: Groups
) -> None:
    """Has the rounds go on in other groups; a collective call, after all ranks have drained.

    Args:
        stream: what `start` returned.
        options: what `start` was given.
        dtype: what `start` was given.
        shapes: what `start` was given.
        groups: the new ones.

    Raises:
        ValueError: Horovod has no such groups.
        HorovodInternalError: a rank did not answer in time, or has left.
    """
    stop_stream("rna", stream, flows.PATIENCE_SECONDS)
    _start(stream, options, dtype, shapes, groups)


def _start(
    stream: int, options: RoundOptions, dtype: Any, shapes: Sequence[Any], groups: Groups | None
) -> None:
    rank, size = basics.rank(), basics.size()
    together = rna_groups.check(groups or [range(size)], size)
    members = next(group for group in together if rank in group)
    worker, controller = native.start_rna(
        native.RnaOptions(
            stream=stream,
            job=flows.this_job(),
            members=members,
            process_set=rna_groups.process_set(together, size),
            period=options.period if len(together) > 1 else 0,
            parameters=None if groups is None else parameter_server.key_of_stream(stream),
            choices=options.choices,
            quorum=min(options.quorum, len(members)),  # a group found later may be smaller
            seed=options.seed,
            staleness=options.staleness,
            sums=options.sums,
            aligned=options.aligned,
            dtype=dtype,
            shapes=shapes,
        )
    )
    addresses = exchange.gather([worker, controller], "the addresses of the workers of rounds")
    workers = [theirs for theirs, _ in addresses]
    connect_stream("rna", stream, addresses[members[0]][1], workers)
    exchange.gather(None, "that all flows of the rounds are open")

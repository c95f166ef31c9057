"""RNA's rounds: started for one optimizer on all ranks together, and ended with the job."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from trepak.horovod_ext import basics, parameter_server, rna_groups, sessions
from trepak.horovod_ext.rna_groups import Groups
from trepak.ops.loader import load_horovod_driver


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

    staleness: int = 8
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


def start(options: RoundOptions, values: Mapping[str, Any], groups: Groups | None = None) -> int:
    """Opens a session of rounds for one optimizer; a collective call.

    Args:
        options: the same on all ranks.
        values: `dtype` and `shapes` of the gradients.
        groups: ranks that have rounds of their own, and exchange parameters with other groups; each
            rank is in one of them. None: all ranks have the same rounds.

    Returns:
        Its number.

    Raises:
        ValueError: more answers are wanted than there are ranks, or Horovod has no such groups.
        HorovodInternalError: a rank did not answer in time, or has left.
    """
    smallest = min(map(len, groups)) if groups is not None else basics.size()
    if options.quorum > smallest:
        raise ValueError(f"quorum={options.quorum} answers can't come from {smallest} ranks.")
    if groups is not None:
        parameter_server.start(parameter_server.ServerOptions())
    load_horovod_driver()
    session = sessions.draw_number()
    _open(session, options, values, groups)
    return session


def regroup(session: int, options: RoundOptions, values: Mapping[str, Any], groups: Groups) -> None:
    """Has the rounds go on in other groups; a collective call, after all ranks have drained.

    Args:
        session: what `start` returned.
        options: what `start` was given.
        values: what `start` was given.
        groups: the new ones.

    Raises:
        ValueError: Horovod has no such groups.
        HorovodInternalError: a rank did not answer in time, or has left.
    """
    sessions.close_session(session)
    _open(session, options, values, groups)


def _open(
    session: int, options: RoundOptions, values: Mapping[str, Any], groups: Groups | None
) -> None:
    rank, size = basics.rank(), basics.size()
    together = rna_groups.check(groups or [range(size)], size)
    members = next(group for group in together if rank in group)
    facts = {
        **dataclasses.asdict(options),
        **values,
        "members": list(members),
        "process_set": rna_groups.process_set(together, size),
        "quorum": min(options.quorum, len(members)),  # a group found later may be smaller
        "period": options.period if len(together) > 1 else 0,
        "parameters": None if groups is None else parameter_server.key_of(session),
    }
    sessions.open_session("rna", facts, session=session)

"""RNA's rounds: started for one optimizer on all ranks together, and ended with the job."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from trepak.horovod_ext import basics, config, exchange, flows
from trepak.ops import rna as native


@dataclass(frozen=True)
class RoundOptions:
    """When rounds start and what goes into them; the same on all ranks.

    Attributes:
        choices: ranks that are probed per round.
        quorum: answers that start it.
        seed: of the draws.
        staleness: gradients that are more rounds stale are dropped.
        sums: several gradients of a rank are added up; otherwise their mean is taken, weighted by
            how new they are.
    """

    choices: int = 2
    quorum: int = 1
    seed: int = 0
    staleness: int = 3
    sums: bool = False

    def __post_init__(self) -> None:
        """Raises ValueError for options that are wrong."""
        for name in ("choices", "quorum"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1, got {getattr(self, name)}.")
        if self.staleness < 0:
            raise ValueError(f"staleness must not be negative, got {self.staleness}.")


def start(options: RoundOptions, dtype: Any, shapes: Sequence[Any]) -> int:
    """Starts rounds for one optimizer; a collective call.

    Args:
        options: the same on all ranks.
        dtype: of the gradients, float32 or float64.
        shapes: of the gradients.

    Returns:
        The number by which these rounds are known.

    Raises:
        ValueError: more answers are wanted than there are ranks, or the job is elastic.
        HorovodInternalError: a rank did not answer in time, or has left.
    """
    rank, size = basics.rank(), basics.size()
    if options.quorum > size:
        raise ValueError(f"quorum={options.quorum} answers can't come from {size} ranks.")
    basics.reject_elastic("RNA")
    stream = flows.begin_stream(native.stop_rna)
    worker, controller = native.start_rna(
        native.RnaOptions(
            stream=stream,
            rank=rank,
            size=size,
            host=flows.reachable_address(),
            secret=flows.draw_secret(),
            deadline_seconds=float(config.value("TREPAK_DEADLINE_SECONDS")),
            choices=options.choices,
            quorum=options.quorum,
            seed=options.seed,
            staleness=options.staleness,
            sums=options.sums,
            dtype=dtype,
            shapes=shapes,
        )
    )
    addresses = exchange.gather([worker, controller], "the addresses of RNA")
    native.connect_rna(stream, addresses[0][1], [theirs for theirs, _ in addresses])
    exchange.gather(None, "that all flows of RNA are open")
    return stream

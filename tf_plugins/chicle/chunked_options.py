"""The options of a ChunkedDataset: what they may be, and what ranks must have alike."""

from __future__ import annotations

import numbers
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from trepak.tf_plugins.chicle.commit_options import check_commits
from trepak.tf_plugins.chicle.policy import Policy
from trepak.tf_plugins.chicle.straggler_mitigation import StragglerMitigation

_WHOLE: Any = numbers.Integral
_FEW_CHUNKS = 4  # of a rank: each is a quarter of its time, or more


@dataclass(frozen=True)
class ChunkedOptions:
    """What a ChunkedDataset was given beside its samples; see there.

    Attributes:
        batch_size: samples of a step, divided by the number of ranks.
        chunk_bytes: of a chunk, at most.
        policies: what moves chunks.
        seed: decides who gets which chunk, and all orders.
        commit_seconds: of an elastic job, between two commits.
        replicas: of an elastic job, whether the next rank keeps a copy of each chunk.
    """

    batch_size: int
    chunk_bytes: int
    policies: Sequence[Policy]
    seed: int
    commit_seconds: float
    replicas: bool

    def check(self) -> None:
        """Raises ValueError or TypeError for options that are out of range, or of another type."""
        for name, least in (("batch_size", 1), ("chunk_bytes", 1), ("seed", 0)):
            _check_whole(name, getattr(self, name), least)
        check_commits(self.commit_seconds, self.replicas)
        for policy in self.policies:
            if not isinstance(policy, Policy):
                raise TypeError(f"policies must be trepak.chicle's, or made like them: {policy!r}.")
            if isinstance(policy, StragglerMitigation):
                raise ValueError(
                    "batches follow from the samples that ranks have: leave out "
                    "StragglerMitigation, which would have a rank take fewer."
                )

    def facts(self) -> dict[str, str]:
        """Returns in words what ranks must have alike."""
        named = {name: getattr(self, name) for name in ("batch_size", "chunk_bytes", "seed")}
        return {name: str(int(value)) for name, value in named.items()}

    def warn_of_few(self, chunks: int, ranks: int) -> None:
        """Warns where policies could move hardly any chunk.

        Args:
            chunks: of all ranks.
            ranks: that have them.
        """
        if ranks > 1 and self.policies and chunks < _FEW_CHUNKS * ranks:
            warnings.warn(
                f"there are {chunks} chunks for {ranks} ranks, so that few can move: give smaller "
                f"ones (chunk_bytes is {self.chunk_bytes}), for some ten on each rank.",
                stacklevel=2,
            )


def _check_whole(name: str, value: Any, least: int) -> None:
    if isinstance(value, bool) or not isinstance(value, _WHOLE):
        raise TypeError(f"{name} must be a whole number, got {value!r}.")
    if value < least:
        raise ValueError(f"{name} must be at least {least}, got {value!r}.")

"""The options of a ChunkedDataset: what they may be, and what ranks must have alike."""

from __future__ import annotations

import numbers
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from trepak.tf_plugins.chicle.policy import Policy
from trepak.tf_plugins.chicle.straggler_mitigation import StragglerMitigation

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
            _check_number(name, getattr(self, name), numbers.Integral, least)
        _check_number("commit_seconds", self.commit_seconds, numbers.Real, 0)
        if self.replicas not in (True, False):
            raise TypeError(f"replicas must be True or False, got {self.replicas!r}.")
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


def _check_number(name: str, value: Any, kind: Any, least: int) -> None:
    if not isinstance(value, kind) or isinstance(value, bool):
        what = "a whole number" if kind is numbers.Integral else "a number"
        raise TypeError(f"{name} must be {what}, got {value!r}.")
    if not value >= least:
        raise ValueError(f"{name} must be at least {least}, got {value!r}.")

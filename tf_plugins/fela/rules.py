"""What a user, or the tuning, decides on: tokens' sizes, who trains what, and the policies."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

_MOST = 2**31 - 1
_MOST_STALENESS = 64  # as native code has it


@dataclass(frozen=True)
class TokenRules:
    """The rules of the token server (Sections III-D to III-F and IV-B).

    Attributes:
        threshold: samples of a T-1 token.
        weights: by sub-model: a T-i token is weights[i] / weights[0] times as large as a T-1 token,
            so that there are that many times fewer. The first is 1, and each is a multiple of the
            one before.
        conditional: by sub-model, whether only the subset trains it.
        subset: how many ranks, from rank 0 on, train conditional sub-models (CTD); None: all.
        depth_first: whether the highest level goes first (ADS).
        hierarchical: whether each worker has a sub-bucket (HF).
        recompute: whether others may make activations anew to go backward for their holder; with a
            staleness they never do, since their weights may be of other iterations.
        staleness: a rank's weights may lack the updates of so many iterations (SSP); 0 is BSP.
    """

    threshold: int
    weights: Sequence[int]
    conditional: tuple[bool, ...]
    subset: int | None = None
    depth_first: bool = True
    hierarchical: bool = True
    recompute: bool = True
    staleness: int = 0

    def __post_init__(self) -> None:
        """Makes NumPy's numbers Python's.

        Raises:
            TypeError: a number is not whole, or a switch is neither True nor False.
            ValueError: a rule is wrong.
        """
        self._check()
        for name in ("threshold", "subset", "staleness"):
            number = getattr(self, name)
            object.__setattr__(self, name, None if number is None else int(number))
        for name, kind in (("weights", int), ("conditional", bool)):
            object.__setattr__(self, name, tuple(map(kind, getattr(self, name))))
        for name in ("depth_first", "hierarchical", "recompute"):
            switch = getattr(self, name)
            if not isinstance(switch, bool | np.bool_):
                raise TypeError(f"{name} is True or False, got {switch!r}.")
            object.__setattr__(self, name, bool(switch))

    def _check(self) -> None:
        if not np.iterable(self.weights):
            raise TypeError(f"weights are numbers, one for each sub-model, got {self.weights!r}.")
        numbers = [self.threshold, *self.weights, *([] if self.subset is None else [self.subset])]
        for number in [*numbers, self.staleness]:
            if isinstance(number, bool) or not isinstance(number, int | np.integer):
                raise TypeError(
                    f"threshold, weights, subset and staleness are whole numbers, got {number!r}."
                )
            if number > _MOST:
                raise ValueError(f"threshold, weights, subset and staleness are at most {_MOST}.")
        if not 0 <= self.staleness <= _MOST_STALENESS:
            raise ValueError(
                f"staleness is 0 to {_MOST_STALENESS} iterations, got {self.staleness}."
            )
        if self.staleness and self.subset is not None:
            raise ValueError(
                "staleness does not go with a conditional subset, whose weights the other ranks "
                "lack anyway: leave one of them out."
            )
        if self.subset is not None and not any(self.conditional):
            raise ValueError(
                "subset is for sub-models with a Dense layer, and the model has none: leave it out."
            )
        if self.threshold < 1:
            raise ValueError(f"threshold must be at least 1 sample, got {self.threshold}.")
        if len(self.weights) != len(self.conditional):
            raise ValueError(
                f"weights has {len(self.weights)} numbers, where the model has "
                f"{len(self.conditional)} sub-models."
            )
        pairs = zip(self.weights, self.weights[1:], strict=False)
        if self.weights[0] != 1 or any(b < a or b % a for a, b in pairs):
            raise ValueError(
                f"weights must begin with 1, and each be a multiple of the one before, got "
                f"{self.weights}."
            )
        if self.subset is not None and self.subset < 1:
            raise ValueError(f"subset must be at least 1 rank, got {self.subset}.")

    @staticmethod
    def weights_for(thresholds: Sequence[int], size: int) -> tuple[int, ...]:
        """Returns weights by which each sub-model's tokens make full use of a worker.

        Args:
            thresholds: by sub-model, samples.
            size: of the job: weights are powers of two up to it (Section IV-B).
        """
        weights = [1]
        for threshold in thresholds[1:]:
            weight = weights[-1]
            while 2 * weight <= min(size, threshold / thresholds[0]):
                weight *= 2
            weights.append(weight)
        return tuple(weights)

    @staticmethod
    def weights_to_try(sub_models: int, size: int) -> list[tuple[int, ...]]:
        """Returns the cases of the tuning's first phase: powers of two that don't fall (IV-B).

        Args:
            sub_models: of the model.
            size: of the job.
        """
        powers = [1 << i for i in range(size.bit_length())]
        later = itertools.combinations_with_replacement(powers, sub_models - 1)
        return [(1, *one) for one in later]

    @staticmethod
    def subsets_to_try(size: int) -> list[int]:
        """Returns those of the second phase: subsets half as large as the one before."""
        return [size >> i for i in range(1, size.bit_length())]

    def is_partial(self, size: int) -> bool:
        """Tells whether some rank of a job of that size does not train some sub-model."""
        return any(len(one) < size for one in self.members(size))

    def members(self, size: int) -> list[list[int]]:
        """Returns, by sub-model, the ranks that train it, of a job of that size."""
        subset = range(min(self.subset or size, size))
        return [list(subset) if one else list(range(size)) for one in self.conditional]

    def on(self, batches: Sequence[int]) -> dict[str, Any]:
        """Returns them as native code takes them (FelaRules).

        Args:
            batches: by rank, samples of an iteration.
        """
        size = len(batches)
        members = self.members(size)
        subsets = [[] if len(one) == size else one for one in members]
        return {
            "batches": list(batches),
            "threshold": self.threshold,
            "weights": list(self.weights),
            "subsets": subsets,
            "depth_first": self.depth_first,
            "hierarchical": self.hierarchical,
            "recompute": self.recompute and not self.staleness,
            "staleness": self.staleness,
        }

"""How popular the rows of an embedding table are: a power law in closed form."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

Floats = np.ndarray[Any, np.dtype[np.float64]]


@dataclass(frozen=True)
class PowerLaw:
    """A power law over the rows of a table.

    Row r, counted from 0 in the order of popularity, is looked up with the probability

        p(r) = F(r + 1) − F(r),  F(k) = ∫₁^(k+1) x^−s dx / ∫₁^(N+1) x^−s dx,

    so that p(r) falls like r^−s. Zipf's law has sums where this has integrals; with integrals F,
    which is the hit share of a cache of the k most popular rows, and its inverse are formulas, and
    a draw from a hundred million rows needs no table.

    Attributes:
        rows: N, the number of rows, at least 1.
        exponent: s ≥ 0; 0 makes all rows alike. Lookups of advertisements have about 1.

    Raises:
        ValueError: `rows` or `exponent` is out of range.
    """

    rows: int
    exponent: float

    def __post_init__(self) -> None:
        if self.rows < 1:
            raise ValueError(f"a table has at least 1 row, got {self.rows}.")
        if not self.exponent >= 0:
            raise ValueError(f"a power law's exponent is at least 0, got {self.exponent}.")

    def hit_share(self, top: Any) -> Any:
        """Returns F: the share of lookups that go to the `top` most popular rows.

        Args:
            top: numbers of rows, from 0 to N; a number or an array.

        Returns:
            float64, from 0 to 1, of the same shape.
        """
        return self._integral(np.asarray(top, np.float64)) / self._integral(np.float64(self.rows))

    def probabilities(self) -> Floats:
        """Returns p for all rows, the most popular one first: float64, (rows,)."""
        return np.diff(self.hit_share(np.arange(self.rows + 1)))

    def rank(self, uniform: Floats) -> np.ndarray[Any, np.dtype[np.int64]]:
        """Returns the rows that uniform random numbers stand for: the inverse of F, rounded down.

        Args:
            uniform: float64, in [0, 1).

        Returns:
            int64, from 0 to N − 1, of the same shape.
        """
        area = uniform * self._integral(np.float64(self.rows))
        rest = 1 - self.exponent
        if rest == 0:
            x = np.exp(area)
        else:
            x = (1 + area * rest) ** (1 / rest)
        # Rounding can carry the last row's numbers one too far.
        return np.minimum(x.astype(np.int64), self.rows) - 1

    def _integral(self, k: Any) -> Any:
        """Returns ∫₁^(k+1) x^−s dx."""
        rest = 1 - self.exponent
        return np.log1p(k) if rest == 0 else np.expm1(rest * np.log1p(k)) / rest

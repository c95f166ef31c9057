"""A factorization machine that decides who clicks, so that the best possible AUC is known."""

from __future__ import annotations

from typing import Any

import numpy as np

from trepak.models import counter_random

# Shares of the logit's variance: of single ids, of pairs of ids, and of the counts.
_IDS, _PAIRS, _COUNTS = 0.45, 0.35, 0.2
# A hash of an id holds its weight and its factors, 12 bits each.
_BITS = np.uint64(12)
_MASK = np.uint64(2**12 - 1)
_FACTORS = 4
_UNIT = np.float32(np.sqrt(3.0) / 2**11)  # times −2^11 … 2^11 − 1: a variance of 1
# Some features tell much and most tell little, as in real data: each has so much of the strength of
# the one before. With equal strengths each of 325 pairs would tell next to nothing.
_WANING = 2 ** (-1 / 3)


class PlantedClicks:
    """Click probabilities by a factorization machine (Rendle, 2010, eq. 1) with known weights.

        p = σ(b + c (Σ_f w_f(id_f) + Σ_{f<g} ⟨v_f(id_f), v_g(id_g)⟩ + Σ_j u_j log(1 + count_j)))

    Weights and the 4 factors of v are hashes of the id: no table, whatever the vocabulary. The
    scale c and the bias b are fitted to a sample, so that the logits' standard deviation and the
    click rate are those asked for.
    """

    def __init__(self, seed: int, features: int, spans: Any) -> None:
        """Draws the weights.

        Args:
            seed: of the weights.
            features: F, the number of categorical features.
            spans: standard deviations of log(1 + count) by numerical feature, float, (D, 1).
        """
        self._ids = counter_random.streams(seed, "weights of ids", features)
        order = counter_random.streams(seed, "strengths", features).argsort(axis=0).argsort(axis=0)
        self._strengths = (_WANING**order).astype(np.float32)
        slopes = counter_random.uniform(counter_random.streams(seed, "slopes", len(spans)))
        scale = np.sqrt(12 * _COUNTS / max(1, len(spans)))
        self._slopes = (scale * (slopes - 0.5) / spans).astype(np.float32)
        self._shift, self._scale, self._bias = 0.0, 1.0, 0.0

    def fit(self, ids: Any, counts: Any, *, click_rate: float, spread: float) -> None:
        """Sets scale and bias by a sample.

        Args:
            ids: whole numbers, (F, n).
            counts: whole numbers, (D, n).
            click_rate: mean of the sample's click probabilities, between 0 and 1.
            spread: standard deviation of the sample's logits, above 0.
        """
        raw = self._raw(ids, counts)
        self._shift, self._scale = float(raw.mean()), spread / float(raw.std() or 1)
        logits = self._scale * (raw - self._shift)
        low, high = -50.0, 50.0
        for _ in range(60):  # the rate grows with the bias: halve what is left of the interval
            self._bias = (low + high) / 2
            if _sigmoid(self._bias + logits).mean() < click_rate:
                low = self._bias
            else:
                high = self._bias

    def probabilities(self, ids: Any, counts: Any) -> np.ndarray[Any, np.dtype[np.float64]]:
        """Returns each sample's probability of a click: float64, (n,).

        Args:
            ids: whole numbers, (F, n).
            counts: whole numbers, (D, n).
        """
        return _sigmoid(self._bias + self._scale * (self._raw(ids, counts) - self._shift))

    def _raw(self, ids: Any, counts: Any) -> np.ndarray[Any, np.dtype[np.float64]]:
        """Returns the bracket of the equation, with a variance of about 1: float64, (n,)."""
        squares = self._strengths**2
        hashes = counter_random.bits(self._ids, ids)
        weights = _added(self._strengths * _lowest(hashes))
        pairs = np.zeros_like(weights)
        for _ in range(_FACTORS):
            hashes >>= _BITS
            factor = self._strengths * _lowest(hashes)
            # Σ_{f<g} v_f v_g = ½ ((Σ_f v_f)² − Σ_f v_f²): Rendle's lemma 3.1
            pairs += (_added(factor) ** 2 - _added(factor**2)) / 2
        variance = _FACTORS * (squares.sum() ** 2 - (squares**2).sum()) / 2
        raw = np.sqrt(_IDS / squares.sum()) * weights
        raw += np.sqrt(_PAIRS / max(variance, 1e-9)) * pairs  # one feature has no pairs
        raw += _added(self._slopes * np.log1p(counts, dtype=np.float32))
        return raw.astype(np.float64)


def _sigmoid(logits: Any) -> Any:
    return 1 / (1 + np.exp(-logits))


def _added(rows: Any) -> Any:
    """Returns the sum of the rows, added in their order, float32, (n,).

    NumPy's own sum takes another order for other n: a sample would depend on its batch.
    """
    total = np.zeros(rows.shape[1], np.float32)
    for row in rows:
        total += row
    return total


def _lowest(hashes: Any) -> Any:
    """Returns the lowest 12 bits as float32 numbers with a mean near 0 and a variance of 1."""
    return ((hashes & _MASK).astype(np.float32) - np.float32(2**11)) * _UNIT

"""The area under the ROC curve: of scores against labels, and the best that any scores can reach.

Keras' `AUC` sorts scores into bins; these are exact.
"""

from __future__ import annotations

from typing import Any

import numpy as np


def auc(scores: Any, labels: Any) -> float:
    """Returns the share of pairs of a click and a non-click in which the click has more score.

    Ties count half: this is the Mann-Whitney statistic, in O(n log n).

    Args:
        scores: numbers, of any shape.
        labels: 1 for a click and 0 for none, as many.

    Raises:
        ValueError: their numbers differ, a label is neither 0 nor 1, or all labels are equal.
    """
    scores, labels = np.ravel(scores), np.ravel(labels)
    if scores.size != labels.size:
        raise ValueError(f"there are {scores.size} scores and {labels.size} labels: pair them.")
    if not np.isin(labels, (0, 1)).all():
        raise ValueError("a label is 1 for a click and 0 for none: others were given.")
    return _weighted(scores, labels.astype(np.float64))


def best_auc(probabilities: Any) -> float:
    """Returns the AUC that the true click probabilities are expected to have: none is better.

        Σ p_i (1 − p_j) ([p_i > p_j] + ½ [p_i = p_j]) / Σ p_i (1 − p_j),  over all pairs i ≠ j:

    the expected numbers of pairs of a click i and a non-click j, ordered rightly and at all.

    Args:
        probabilities: of a click, from 0 to 1, of any shape, for a sample of the population.

    Raises:
        ValueError: a probability is out of range, or none leaves both labels possible.
    """
    probabilities = np.ravel(np.asarray(probabilities, np.float64))
    if not ((probabilities >= 0) & (probabilities <= 1)).all():
        raise ValueError("probabilities are from 0 to 1: others were given.")
    # A sample is no pair with itself: such pairs are ties, with the weight p (1 − p).
    return _weighted(probabilities, probabilities, np.sum(probabilities * (1 - probabilities)))


def _weighted(scores: Any, clicks: Any, own_pairs: float = 0.0) -> float:
    """Returns the AUC where sample i is a click by the share `clicks[i]`."""
    _, group = np.unique(scores, return_inverse=True)
    clicked = np.bincount(group, clicks)
    missed = np.bincount(group, 1 - clicks)
    below = np.cumsum(missed) - missed
    right = np.sum(clicked * (below + missed / 2)) - own_pairs / 2
    pairs = clicked.sum() * missed.sum() - own_pairs
    if not pairs > 0:
        raise ValueError("an AUC needs clicks and non-clicks: all labels are equal.")
    return float(right / pairs)

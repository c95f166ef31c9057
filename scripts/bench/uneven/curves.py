"""When a training reached what, between the ends of its epochs."""

from __future__ import annotations

import math
from collections.abc import Sequence

Curve = Sequence[Sequence[float]]


def seconds_to(curve: Curve, target: float | None) -> float | None:
    """Returns when a held-out loss was reached, between the ends of epochs; None if it was not.

    Args:
        curve: after each epoch, seconds of training, loss (not finite where training went astray)
            and accuracy.
        target: the loss; None: there is none.
    """
    then, before = 0.0, math.inf
    for seconds, loss, _ in curve:
        if target is not None and loss <= target:
            known = math.isfinite(before)  # losses fall about exponentially
            share = math.log(before / target) / math.log(before / loss) if known else 1.0
            return then + share * (seconds - then)
        then, before = seconds, loss
    return None


def seconds_until(curve: Curve, accuracy: float) -> float:
    """Returns when an accuracy was reached, between the ends of epochs; inf if it was not."""
    then, most = 0.0, 0.0
    for seconds, _, reached in curve:
        if reached >= accuracy:
            return then + (seconds - then) * (accuracy - most) / max(reached - most, 1e-9)
        then, most = seconds, max(reached, most)
    return float("inf")


def best_accuracy(curve: Curve) -> float:
    """Returns the accuracy where the held-out loss was the least; 0 if it was never finite."""
    finite = [one for one in curve if math.isfinite(one[1])]
    return min(finite, key=lambda one: one[1])[2] if finite else 0.0

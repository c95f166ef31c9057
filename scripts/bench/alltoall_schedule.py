"""The skewed schedule of `trepak bench alltoall`: its delays, and the least time that it takes."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

_SEED, _MEAN = 6, 20.0  # ms


def delays(ranks: int, iterations: int) -> NDArray[np.float64]:
    """Returns how long each rank computes before each exchange, in ms, [ranks, iterations].

    Exponential around a constant half, as step times with stragglers are; the same on all machines.
    """
    random = np.random.default_rng(_SEED)
    return _MEAN / 2 + random.exponential(_MEAN / 2, (ranks, iterations))


def bound(computed: NDArray[np.float64], window: int) -> float:
    """Returns when the last exchange is over at the earliest, in ms: if exchanges take no time.

    A rank computes for its t-th exchange when it has sent its (t - 1)-th and has got the splits of
    the (t - window)-th; it gets those when all ranks have sent theirs. In max-plus algebra:
    sent[r, t] = max(sent[r, t - 1], over[t - window]) + computed[r, t]; over[t] = max_r sent[r, t].

    Args:
        computed: ms, [ranks, iterations].
        window: exchanges that may be under way.
    """
    over = np.zeros(computed.shape[1] + window)  # behind the iterations stand the first ones' zeros
    sent = np.zeros(len(computed))
    for iteration, now in enumerate(computed.T):
        sent = np.maximum(sent, over[iteration - window] if iteration >= window else 0.0) + now
        over[iteration] = sent.max()
    return float(over[: computed.shape[1]].max())

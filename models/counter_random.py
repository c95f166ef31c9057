"""Random numbers that are functions of a counter: the same in any order, batch and process.

Number i of a stream is SplitMix64's output i for the stream's seed (Steele, Lea and Flood, "Fast
splittable pseudorandom number generators", 2014): a hash of seed + (i + 1) · γ, without a state.
"""

from __future__ import annotations

from typing import Any

import numpy as np

Bits = np.ndarray[Any, np.dtype[np.uint64]]

_GAMMA = np.uint64(0x9E3779B97F4A7C15)  # 2^64 divided by the golden ratio, odd
_MIXERS = (
    (np.uint64(30), np.uint64(0xBF58476D1CE4E5B9)),
    (np.uint64(27), np.uint64(0x94D049BB133111EB)),
)
_LAST_SHIFT = np.uint64(31)
_TO_UNIT = 2.0**-53  # a float64 holds 53 bits


def streams(seed: int, purpose: str, count: int) -> Bits:
    """Returns the seeds of independent streams.

    Args:
        seed: of all of them.
        purpose: what the numbers are for: other purposes get other streams.
        count: how many streams.

    Returns:
        uint64, (count, 1): to be combined with counters of the shape (n,), for numbers of the
        shape (count, n).
    """
    words = np.frombuffer(purpose.encode().ljust(-(-len(purpose) // 8) * 8), np.uint64)
    state = np.array([seed % 2**64], np.uint64)
    for word in words:
        state = bits(state, word[None])
    return bits(state, np.arange(count, dtype=np.uint64))[:, None]


def bits(stream: Bits, counter: np.ndarray[Any, Any]) -> Bits:
    """Returns 64 random bits for each counter.

    Args:
        stream: seeds, uint64, of a shape that broadcasts with `counter`.
        counter: whole numbers; negative ones too.

    Returns:
        uint64, of the shape that both broadcast to.
    """
    z = (counter.astype(np.uint64) + np.uint64(1)) * _GAMMA + stream
    for shift, factor in _MIXERS:
        z ^= z >> shift
        z *= factor
    z ^= z >> _LAST_SHIFT
    return z


def uniform(random: Bits) -> np.ndarray[Any, np.dtype[np.float64]]:
    """Returns numbers of the uniform distribution on [0, 1) with 53 random bits each."""
    return (random >> np.uint64(11)).astype(np.float64) * _TO_UNIT

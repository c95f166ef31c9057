"""ZipLine against all combinations, and what the paper compares it with."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st

from trepak.horovod_ext.zipline import search, zipline
from trepak.ops.loader import call

# Small whole steps, so that many ends, and many waiting times, are equal.
INTERVALS = st.one_of(st.integers(0, 6).map(float), st.floats(1e-9, 10))
MATRICES = st.tuples(st.integers(1, 5), st.integers(1, 6)).flatmap(
    lambda shape: st.lists(
        st.lists(INTERVALS, min_size=shape[1], max_size=shape[1]),
        min_size=shape[0],
        max_size=shape[0],
    ).map(lambda rows: np.cumsum(np.array(rows), axis=1))
)


def least_waiting(ends: np.ndarray) -> tuple[float, float]:
    """Returns the least waiting time of all combinations, and when the first such barrier is."""
    return min((max(chosen) - min(chosen), max(chosen)) for chosen in itertools.product(*ends))


@settings(max_examples=3000, deadline=None)
@given(MATRICES)
def test_zipline_is_the_best_of_all_combinations(ends: np.ndarray) -> None:
    least, earliest = least_waiting(ends)
    for algorithm in ("zipline", "paper", "naive"):
        barrier = search(ends, algorithm)
        assert (barrier.waiting_time, barrier.barrier_time) == (least, earliest)
        chosen = ends[np.arange(len(ends)), barrier.iterations - 1]
        assert chosen.max() - chosen.min() == least and chosen.max() == earliest
        assert barrier.iterations.min() >= 1 and barrier.iterations.max() <= ends.shape[1]


@settings(max_examples=500, deadline=None)
@given(MATRICES)
def test_grid_scans_are_combinations_too(ends: np.ndarray) -> None:
    least, _ = least_waiting(ends)
    full = search(ends, "full_grid_scan")
    for barrier in (search(ends, "grid_scan"), full):
        chosen = ends[np.arange(len(ends)), barrier.iterations - 1]
        assert barrier.waiting_time == chosen.max() - chosen.min() >= least
        assert barrier.waiting_time >= full.waiting_time


def test_grid_scan_may_miss_the_best() -> None:
    # The nearest ends to the first worker's second one lie on both sides of it.
    ends = [[5.0, 10.0], [9.2, 11.0], [11.1, 30.0]]
    assert zipline(ends).waiting_time == pytest.approx(11.1 - 10.0)
    assert search(ends, "grid_scan").waiting_time == pytest.approx(11.1 - 9.2)


def test_the_first_of_two_minima_is_chosen_as_in_figure_3() -> None:
    """Three workers, four ends each: of ten sets the sixth and the tenth are the least apart."""
    ends = [[2, 7, 14, 20], [3, 10, 15, 22], [6, 12, 18, 23]]
    latest: dict[int, int] = {}
    apart, last = [], []
    for end, worker in sorted((end, worker) for worker, row in enumerate(ends) for end in row):
        latest[worker] = end
        if len(latest) == len(ends):
            apart.append(end - min(latest.values()))
            last.append(end)
    least = [number for number, one in enumerate(apart, start=1) if one == min(apart)]
    assert len(apart) == 10 and least == [6, 10]
    barrier = zipline(ends)
    assert (barrier.waiting_time, barrier.barrier_time) == (apart[5], last[5])
    assert barrier.iterations.tolist() == [3, 3, 2]  # at 14, 15 and 12


@settings(max_examples=200, deadline=None)
@given(st.integers(2, 40), st.integers(1, 60), st.integers(0, 2**32 - 1))
def test_large_instances_agree_with_the_papers_form(n: int, r: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    paces = rng.uniform(0.5, 2, (n, 1))
    ends = np.cumsum(paces * rng.uniform(0.9, 1.1, (n, r)), axis=1) + rng.uniform(0, 1, (n, 1))
    ours, theirs = zipline(ends), search(ends, "paper")
    assert (ours.waiting_time, ours.barrier_time) == (theirs.waiting_time, theirs.barrier_time)
    assert ours.iterations.tolist() == theirs.iterations.tolist()
    # A barrier is within the lookahead: no two workers are further apart than that.
    assert ours.iterations.max() - ours.iterations.min() < r


@pytest.mark.parametrize(
    "ends",
    [[], [[]], [1.0, 2.0], [[2.0, 1.0]], [[1.0, float("nan")]], [[1.0, float("inf")]]],
)
def test_wrong_end_times_are_refused(ends: list) -> None:
    with pytest.raises(ValueError, match=r"end times"):
        zipline(ends)


def test_unknown_algorithms_are_refused() -> None:
    with pytest.raises(ValueError, match=r"there are: zipline, paper"):
        search([[1.0]], "fastest")


def test_native_code_refuses_what_is_no_matrix() -> None:
    with pytest.raises(tf.errors.InvalidArgumentError, match="end_times: must be a matrix"):
        call("search_barrier", end_times=np.array([1.0, 2.0]), algorithm="zipline")

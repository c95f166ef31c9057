"""Samples that ranks take from one order; cases in tests/workers."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from conftest import Shown, shows
from test_failures import ENDED, LIMIT, LONGER, check_survivors_of_flows, kill_one, nothing_is_left


@shows({"pace-mpi-2": ["dynamic_sharding"], "pace-gloo-3": ["dynamic_sharding"]})
def test_dynamic_sharding(shown: Shown) -> None:
    """With one rank: test_bsp.test_one_process_without_a_launcher."""
    shown.check()


@pytest.mark.parametrize("samples", [1, 2, 2**16, 2**16 + 1, 2**17 + 1, 2**18 + 1])
def test_a_pass_has_each_sample_once(samples: int) -> None:
    from trepak.tf_plugins.data.dynamic_sharding import shuffled

    taken = shuffled(samples, 2 * samples, samples, seed=7).numpy().reshape(2, samples)
    np.testing.assert_array_equal(np.sort(taken), [range(samples)] * 2)
    assert samples < 3 or (taken[0] != taken[1]).any()


@pytest.mark.parametrize(  # whose server counts what is taken, or one without
    "rank", [2, pytest.param(0, marks=LONGER)]
)
def test_who_takes_samples_learns_that_a_rank_died(tmp_path: Path, rank: int) -> None:
    code, output, seconds, killed_at = kill_one(tmp_path, gloo=True, loop="order", rank=rank)
    assert code != 0
    assert seconds < ENDED, f"{seconds:.1f} s\n{output[-3000:]}"
    check_survivors_of_flows(tmp_path, killed_at, LIMIT, rank)
    nothing_is_left(tmp_path)

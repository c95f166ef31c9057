"""The simulation of Figure 5.7 against what can be computed."""

from __future__ import annotations

import numpy as np
import pytest

from trepak.scripts.bench import rna_probes


@pytest.mark.parametrize("choices", [1, 2, 4])
def test_fresh_tasks_are_minima_of_uniform_times(choices: int) -> None:
    times = rna_probes.fresh_tasks(choices, 20_000, seed=1)
    assert times.min() >= 10 and times.max() <= 50
    np.testing.assert_allclose(times.mean(), 10 + 40 / (choices + 1), rtol=0.01)


def test_lasting_tasks_are_residual_times() -> None:
    """Of one node, drawn at random in time: E[T^2] / 2 E[T] = (30^2 + 40^2 / 12) / 60 ms."""
    times = rna_probes.lasting_tasks(1, 20_000, seed=1)
    np.testing.assert_allclose(times.mean(), (30**2 + 40**2 / 12) / 60, rtol=0.03)


def test_two_choices_help_more_where_tasks_last() -> None:
    fresh = rna_probes.speedup(rna_probes.fresh_tasks, 20_000, seed=2)
    lasting = rna_probes.speedup(rna_probes.lasting_tasks, 20_000, seed=2)
    np.testing.assert_allclose(fresh, 30 / (10 + 40 * (1 - 0.5**0.5)), rtol=0.02)
    assert lasting > 1.5 > fresh


def test_the_exponent_that_gives_a_ratio() -> None:
    exponent = rna_probes.needed_exponent(2.4)
    residuals = np.random.default_rng(3).uniform(size=(100_000, 2)) ** (1 / exponent)
    ratio = np.median(residuals[:, 0]) / np.median(residuals.min(axis=1))
    np.testing.assert_allclose(ratio, 2.4, rtol=0.03)

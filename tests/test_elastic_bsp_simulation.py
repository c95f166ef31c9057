"""What the scheduler makes of given times, simulated."""

from __future__ import annotations

import numpy as np
import pytest

from trepak.horovod_ext.elastic_bsp import StepOptions
from trepak.horovod_ext.elastic_bsp_simulation import intervals_of, simulate

FACTORS = np.array([[1.0], [1.25], [1.6], [2.0]])
BOUND = 2.0 * (1 / FACTORS).mean()  # max(T) · mean(1/T)
STEPS = 1024


def intervals(jitter: float = 0.0, steps: int = 200) -> np.ndarray:
    rng = np.random.default_rng(0)
    return 0.1 * FACTORS * (1 + jitter * rng.uniform(0, 1, (4, steps)))


def test_one_step_ahead_waits_for_the_slowest() -> None:
    found = simulate(intervals(), StepOptions("elastic_bsp", lookahead=1), STEPS)
    assert found.seconds == pytest.approx(0.2 * STEPS / 4)
    assert found.steps.tolist() == [STEPS // 4] * 4
    assert found.waiting[3] == pytest.approx(0.0)
    assert found.waiting[0] == pytest.approx(0.1 * STEPS / 4)
    assert found.schedule.barriers == STEPS // 4


@pytest.mark.parametrize("prediction", ["mean", "last", "exponential"])
def test_barriers_with_little_waiting_come_close_to_the_bound(prediction: str) -> None:
    bsp = simulate(intervals(0.04), StepOptions("elastic_bsp", lookahead=1), STEPS)
    options = StepOptions("elastic_bsp", lookahead=15, prediction=prediction)
    ours = simulate(intervals(0.04), options, STEPS)
    assert 0.95 * BOUND < bsp.seconds / ours.seconds <= 1.01 * BOUND
    assert ours.schedule.waiting < 0.1 * bsp.schedule.waiting
    # A superstep has as many steps of the fastest as the lookahead at most.
    assert ours.steps.max() <= 15 * (ours.schedule.barriers + 1)


def test_a_wrong_prediction_costs_a_superstep_at_most() -> None:
    """A rank becomes five times as slow: others wait once, within the lookahead."""
    times = intervals(steps=400)
    times[0, 100:] *= 5
    found = simulate(times, StepOptions("elastic_bsp", lookahead=15), STEPS)
    assert found.waiting.max() < 15 * 0.5 + 0.2 * found.seconds
    assert found.schedule.error > 0


def test_ssp_goes_as_fast_as_the_slowest_and_asp_as_each_can() -> None:
    bsp = simulate(intervals(), StepOptions("elastic_bsp", lookahead=1), STEPS)
    ssp = simulate(intervals(), StepOptions("ssp", staleness=3), STEPS)
    asp = simulate(intervals(), StepOptions("asp"), STEPS)
    assert bsp.seconds / ssp.seconds == pytest.approx(1.0, abs=0.02)
    assert ssp.steps.max() - ssp.steps.min() <= 4
    assert bsp.seconds / asp.seconds == pytest.approx(BOUND, rel=0.01)
    assert asp.waiting.sum() == 0.0


def test_ten_thousand_workers_are_simulated_in_seconds() -> None:
    times = np.repeat(intervals(0.1, 30), 2500, axis=0)
    found = simulate(times, StepOptions("elastic_bsp"), 200_000)
    assert found.steps.sum() == 200_000 and len(found.steps) == 10_000
    assert found.schedule.planning / found.schedule.barriers < 0.2


def test_all_ranks_end_an_epoch_and_go_on_together() -> None:
    options = StepOptions("elastic_bsp", lookahead=60)
    epochs = [100, 300]
    found = simulate(intervals(0.04), options, STEPS, epochs)
    # Who is at a step when the epoch ends, ends it.
    assert 400 <= found.steps.sum() <= 400 + len(epochs) * 3
    # An epoch that ends with every step of all makes bulk synchronous training.
    each = simulate(intervals(), options, STEPS, [4] * 20)
    bulk = simulate(intervals(), StepOptions("elastic_bsp", lookahead=1), 80)
    assert each.seconds == pytest.approx(bulk.seconds)
    assert each.steps.tolist() == [20] * 4


def test_an_epoch_that_has_ended_begins_no_step() -> None:
    """4 steps have ended after 3 s, another ends at 5 s; then all go on: 8 after 7.5 s, 9 at 8."""
    found = simulate([[1.0], [2.5]], StepOptions("asp"), 100, [4, 4])
    assert found.steps.tolist() == [6, 3] and found.seconds == 8.0
    assert found.schedule.waiting == 0.0  # a flush is no barrier


def test_what_was_recorded_can_be_simulated() -> None:
    recorded = [[0, 1.0, 0.2, 0.1], [1, 1.1, 0.5, 0.1], [0, 1.4, 0.3, 0.1]]
    np.testing.assert_allclose(intervals_of(recorded), [[0.3, 0.4], [0.6, 0.6]])


@pytest.mark.parametrize("wrong", [[], [1.0, 2.0], [[0.0]], [[float("nan")]]])
def test_wrong_intervals_are_refused(wrong: list) -> None:
    with pytest.raises(ValueError, match="positive seconds"):
        simulate(wrong, StepOptions("asp"), 10)


def test_nothing_recorded_is_explained() -> None:
    with pytest.raises(ValueError, match="no step was recorded"):
        intervals_of(np.zeros((0, 4)))
    with pytest.raises(ValueError, match="has no recorded step"):
        intervals_of([[1, 1.0, 0.2, 0.1]])
    with pytest.raises(ValueError, match="steps must be at least 1"):
        simulate([[1.0]], StepOptions("asp"), 0)
    with pytest.raises(ValueError, match="and in epochs"):
        simulate([[1.0]], StepOptions("asp"), 1, [0])

"""What the scheduler makes of given times, simulated."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import ArrayLike

from trepak.horovod_ext.elastic_bsp import StepOptions
from trepak.horovod_ext.elastic_bsp_simulation import Record, record_of, simulate

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


def test_each_step_is_recorded() -> None:
    found = simulate([[1.0], [2.5]], StepOptions("ssp", staleness=1), 5)
    # Rank 0 waits with two steps more than the other one's.
    np.testing.assert_allclose(
        found.recorded, [[0, 0, 1], [0, 1, 2], [1, 0, 2.5], [0, 2.5, 3.5], [1, 2.5, 5]]
    )
    assert found.waiting.tolist() == [2.0, 0.0] and found.steps.tolist() == [3, 2]


def test_what_was_recorded_can_be_simulated() -> None:
    """The first step began at 0.5, rank 1's only one at 0.6; rank 0 waited 0.2 s between its two.

    The record is over when the last step is. Rank 1 is taken to be as much slower before its step,
    and faster after it, than on average as rank 0 was.
    """
    found = record_of([[0, 1.0, 0.4, 0.1], [1, 1.2, 0.5, 0.1], [0, 1.5, 0.2, 0.1]])
    np.testing.assert_allclose(found.intervals, [[0.5, 0.4, 0.3], [0.75, 0.6, 0.45]])
    np.testing.assert_allclose(found.until, [[0.5, 0.7, 1.0], [0.1, 0.7, 1.0]])
    np.testing.assert_allclose(found.after_barrier, [1.0, 1.0])


def test_first_steps_after_barriers_are_recognized_in_a_record() -> None:
    """Steps that hardly ever begin at the same times, but after a barrier."""
    steps, factors = np.array([[1.0], [1.52], [2.03]]), np.array([1.04, 1.03, 1.02])
    given = Record(steps, 1000 * np.ones((3, 1)), factors)
    found = simulate(given, StepOptions("elastic_bsp", lookahead=6), 300)
    # A job does not time the first step of each.
    rows = [[rank, end, end - begin, 0.0] for rank, begin, end in found.recorded if begin > 0]
    again = record_of(rows)
    np.testing.assert_allclose(again.after_barrier, factors)
    np.testing.assert_allclose(again.intervals, np.broadcast_to(steps, again.intervals.shape))
    repeated = simulate(again, StepOptions("elastic_bsp", lookahead=6), 300)
    assert repeated.schedule.waiting == pytest.approx(found.schedule.waiting)


def test_barriers_at_every_step_leave_nothing_to_compare_with() -> None:
    found = simulate([[1.0], [2.0]], StepOptions("elastic_bsp", lookahead=1), 20)
    again = record_of([[rank, end, end - begin, 0.0] for rank, begin, end in found.recorded])
    np.testing.assert_allclose(again.after_barrier, [1.0, 1.0])
    np.testing.assert_allclose(again.intervals[1], 2.0)


def test_without_barriers_steps_that_begin_together_are_like_others() -> None:
    rows = [[0, 1.2, 1.2, 0.0], [1, 1.5, 1.5, 0.0], [0, 2.2, 1.0, 0.0], [1, 2.5, 1.0, 0.0]]
    np.testing.assert_allclose(record_of(rows).after_barrier, [1.2, 1.5])
    found = record_of(rows, barriers=False)  # SSP's: the slowest one has let all others go
    np.testing.assert_allclose(found.after_barrier, [1.0, 1.0])
    np.testing.assert_allclose(found.intervals[:, :2], [[1.2, 1.0], [1.5, 1.0]])


def test_speeds_of_ranks_that_wait_are_averages_where_nobody_is_at_a_step() -> None:
    rows = [[0, 1.0, 0.5, 0.0], [1, 1.0, 0.5, 0.0], [0, 3.0, 1.0, 0.0], [1, 3.0, 0.5, 0.0]]
    found = record_of(rows, barriers=False)
    # Of the 1.5 s that rank 1 waits, rank 0 is at a step for half a second, a slow one.
    np.testing.assert_allclose(found.intervals, [[0.5, 0.75, 1.0], [0.5, 0.5 * 1.0 / 0.75, 0.5]])
    np.testing.assert_allclose(found.until, [[0.5, 1.5, 2.5], [0.5, 2.0, 2.5]])


def test_a_short_record_goes_on_until_its_last_step_ends() -> None:
    found = record_of([[0, 1.0, 0.5, 0.0], [1, 5.0, 4.5, 0.0]])
    np.testing.assert_allclose(found.intervals, [[0.5, 0.5], [4.5, 4.5]])
    assert found.length == 4.5 and found.until[0, 0] == 0.5


def test_no_step_is_taken_to_be_longer_than_the_record() -> None:
    """Rank 0 stands still for 2 s of 2.9; rank 1 waits then, and its only step took 0.9 s."""
    rows = [[0, 0.1 * step, 0.1, 0.0] for step in range(1, 10)]
    found = record_of([*rows, [1, 0.9, 0.9, 0.0], [0, 2.9, 2.0, 0.0]], barriers=False)
    np.testing.assert_allclose(found.intervals[1, :2], [0.9, 2.9])
    assert simulate(found, StepOptions("asp"), 50).steps.sum() == 50


def record(times: ArrayLike, until: ArrayLike) -> Record:
    return Record(np.asarray(times), np.asarray(until))


def test_steps_go_at_the_speed_that_was_recorded_then() -> None:
    """Rank 0 takes steps of 1 s for 2 s, then of 2 s for 4; rank 1 of 4 s all the time."""
    times = record(
        [[1.0, 1.0, 2.0, 2.0], [4.0] * 4], [[1.0, 2.0, 4.0, 6.0], [4.0, 8.0, 12.0, 16.0]]
    )
    found = simulate(times, StepOptions("asp"), 5)  # at 1, 2, 4, 4 and 6
    assert found.seconds == 6.0 and found.steps.tolist() == [4, 1]
    between = simulate(times, StepOptions("asp"), 2, begin=1.5)
    assert between.seconds == 3.5  # half a step until 2, half of one until 3; then 2 s
    again = simulate(times, StepOptions("asp"), 4, begin=5.0)
    assert again.seconds == 4.0  # half of one until 6, which is 0; then at 1.5, 2.5 and 4
    assert again.steps.tolist() == [3, 1]


def test_the_first_step_after_a_barrier_may_take_longer() -> None:
    times = Record(np.array([[1.0], [1.0]]), np.array([[100.0], [100.0]]), np.array([1.5, 3.0]))
    found = simulate(times, StepOptions("elastic_bsp", lookahead=1), 6)
    assert found.seconds == 1.0 + 3.0 + 3.0  # no barrier is before the first one
    assert found.waiting.tolist() == [1.5 + 1.5, 0.0]
    assert simulate(times, StepOptions("asp"), 6).seconds == 3.0


def test_ranks_that_are_slow_together_wait_less_than_one_after_another() -> None:
    """Two equal ranks, slowed at the same times: in step order they would be slow by turns."""
    rng = np.random.default_rng(1)
    slow = np.repeat(1 + rng.integers(0, 2, 100), 10)  # by seconds
    recorded = []
    for rank, phase in ((0, 0.0), (1, 0.3)):
        now = phase
        while now < len(slow) - 3:
            took = 0.5 * slow[int(now)]
            now += took
            recorded.append([rank, now, took, 0.0])
    times = record_of(recorded)
    options = StepOptions("elastic_bsp", lookahead=4)
    by_step = simulate([times.intervals[0], np.roll(times.intervals[1], 40)], options, 1000)
    by_time = simulate(times, options, 1000)
    assert by_time.schedule.waiting < 0.5 * by_step.schedule.waiting


@pytest.mark.parametrize(
    "wrong", [[[1.0, 2.0]], [[1.0, 1.0], [1.0, 2.0]], [[0.0, 1.0], [1.0, 2.0]]]
)
def test_wrong_records_are_refused(wrong: list) -> None:
    with pytest.raises(ValueError, match="rise in each rank"):
        record(np.ones((2, 2)), wrong)


def test_records_that_can_not_be_simulated_are_refused() -> None:
    with pytest.raises(ValueError, match="at least 0 seconds of the record"):
        simulate(record(np.ones((2, 2)), [[1, 2], [1, 2]]), StepOptions("asp"), 10, begin=-1.0)
    with pytest.raises(ValueError, match="as long as its longest step"):
        record([[1.0, 3.0]], [[1, 2]])
    for factors in ([1.0], [1.0, 0.0], [1.0, np.nan]):
        with pytest.raises(ValueError, match="a positive factor for each of 2 ranks"):
            Record(np.ones((2, 1)), np.ones((2, 1)), np.array(factors))


@pytest.mark.parametrize("wrong", [[], [1.0, 2.0], [[0.0]], [[float("nan")]]])
def test_wrong_intervals_are_refused(wrong: list) -> None:
    with pytest.raises(ValueError, match="positive seconds"):
        simulate(wrong, StepOptions("asp"), 10)


@pytest.mark.parametrize("wrong", [0, 2.5, np.nan, np.inf, True, "3", 2**70])
def test_numbers_of_steps_are_whole(wrong: object) -> None:
    with pytest.raises(ValueError, match="steps must be whole numbers"):
        simulate([[1.0]], StepOptions("asp"), wrong)
    with pytest.raises(ValueError, match="steps must be whole numbers"):
        simulate([[1.0]], StepOptions("asp"), 10, [wrong])


@pytest.mark.parametrize("wrong", [None, "1", np.nan, -1])
def test_a_simulation_begins_in_its_record(wrong: object) -> None:
    with pytest.raises(ValueError, match="begin must be at least 0 seconds"):
        simulate([[1.0]], StepOptions("asp"), 10, begin=wrong)


def test_wrong_options_are_refused() -> None:
    with pytest.raises(TypeError, match="options must be StepOptions"):
        simulate([[1.0]], None, 10)
    with pytest.raises(ValueError, match="model must be one of elastic_bsp, ssp, asp"):
        StepOptions("bsp")
    for wrong in (0, 2.5, np.array(2.5), 2**32):
        with pytest.raises(ValueError, match="lookahead must be a whole number from 1 to 10000"):
            StepOptions("elastic_bsp", lookahead=wrong)
    StepOptions("elastic_bsp", lookahead=np.int64(4))


def test_nothing_recorded_is_explained() -> None:
    with pytest.raises(ValueError, match="no step was recorded"):
        record_of(np.zeros((0, 4)))
    with pytest.raises(ValueError, match="what recorded_steps returns"):
        record_of(simulate([[1.0]], StepOptions("asp"), 1).recorded)
    with pytest.raises(ValueError, match="has no recorded step"):
        record_of([[1, 1.0, 0.2, 0.1]])
    with pytest.raises(ValueError, match="steps must be whole numbers from 1"):
        simulate([[1.0]], StepOptions("asp"), 0)
    with pytest.raises(ValueError, match="and in epochs"):
        simulate([[1.0]], StepOptions("asp"), 1, [0])

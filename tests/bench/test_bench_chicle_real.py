"""What `trepak bench chicle` makes of real solvers and real ranks."""

from __future__ import annotations

from typing import Any

import pytest
from matplotlib.figure import Figure

from trepak.scripts.bench import (
    chicle_balance,
    chicle_lanes,
    chicle_liblinear,
    chicle_liblinear_worker,
    chicle_rigid,
    chicle_speedup,
)
from trepak.scripts.bench.chicle_balance import BALANCED, COCOA, PLAIN, Balancing, longest_share
from trepak.scripts.bench.chicle_liblinear import NEAR, OURS, Wanted
from trepak.scripts.report import Claims
from trepak.tf_plugins.chicle.trainer import TaskMetrics

SLOWNESS = (1.0, 1.0, 1.0, 2.0)


@pytest.fixture(scope="module")
def fits() -> list[dict[str, Any]]:
    """What the solvers take for few samples, all losses."""
    losses = dict.fromkeys(("hinge", "squared_hinge", "logistic", "ridge"), 1)
    return chicle_liblinear_worker.measure(Wanted(("higgs", "criteo"), 2_000, losses))


def test_all_solvers_come_near_the_same_optimum(fits: list[dict[str, Any]]) -> None:
    ways = {"hinge": 2, "squared_hinge": 3, "logistic": 3, "ridge": 2}
    for (data_set, loss), count in {
        (data_set, loss): count for data_set in ("higgs", "criteo") for loss, count in ways.items()
    }.items():
        mine = [row for row in fits if (row["data_set"], row["loss"]) == (data_set, loss)]
        assert len(mine) == len({row["way"] for row in mine}) == count
        for row in mine:
            assert -2e-6 < row["above_optimum"] <= NEAR, row
            assert row["seconds"] > 0


def of_round(way: str, number: int, seconds: float, stolen: float = 0.0) -> dict[str, Any]:
    return {
        **{"data_set": "higgs", "loss": "hinge", "round": number, "way": way, "tol": 0.1},
        **{"passes": 2.0, "above_optimum": 1e-4, "seconds": seconds},
        **{"idle": 0.5, "stolen": stolen},
    }


def test_the_claim_is_the_median_of_undisturbed_pairs() -> None:
    pairs = [(1.0, 2.0, 0.0), (1.0, 4.0, 0.0), (3.0, 4.0, 0.0), (9.0, 1.0, 0.2)]
    rows = [
        of_round(way, number, seconds, stolen)
        for place, way in enumerate((OURS, "theirs"))
        for number, (*both, stolen) in enumerate(pairs)
        for seconds in both[place : place + 1]
    ]
    claims = Claims()
    ours, theirs = chicle_liblinear.summarize(rows, claims)
    assert claims["chicle.cocoa_vs_liblinear_time.higgs"].value == pytest.approx(0.5)
    assert (ours["ours_to_it"], theirs["ours_to_it"]) == (None, pytest.approx(0.5))


def test_the_ideal_is_of_whole_chunks() -> None:
    assert longest_share(7, SLOWNESS) == pytest.approx(2 / 7)  # 2, 2, 2 and 1, which takes 2
    assert longest_share(8, SLOWNESS) == pytest.approx(3 / 8)  # the eighth is the third of someone
    assert longest_share(4, (1.0,) * 4) == pytest.approx(1 / 4)


def watched() -> list[dict[str, Any]]:
    """Returns two iterations: four chunks on each of four tasks, then 5, 5, 5 and 1."""
    watch = chicle_lanes.LaneWatch(100.0)
    for now, chunks in ((108.5, (4, 4, 4, 4)), (114.0, (5, 5, 5, 1))):
        tasks = {
            task: TaskMetrics(task, count, count, count, count * SLOWNESS[task])
            for task, count in enumerate(chunks)
        }
        watch.ended(now, tasks)
    return watch.iterations


def test_iterations_are_compared_with_the_ideal() -> None:
    training = Balancing(COCOA, 1000.0, 16, plain=2, settled=1, counted=1)
    rows = chicle_balance._rows(training, {PLAIN: watched(), BALANCED: watched()}, SLOWNESS)
    told = [row for row in rows if row["kind"] == chicle_balance.BALANCE]
    assert [row["first"] for row in told] == [8.5, 8.5]
    assert told[1]["then"] == 5.5
    assert told[1]["slowest_task"] == 5.0
    assert told[1]["ideal"] == pytest.approx(5.0)  # 5, 5, 4 and 2, which take 5, 5, 4 and 4
    claims = Claims()
    chicle_balance.claim(rows, claims)
    assert claims["chicle.balanced_iteration_vs_ideal.lab.cocoa"].value == pytest.approx(1.1)
    assert len(claims) == 1


def test_lanes_have_a_bar_for_each_task_and_iteration() -> None:
    rows = chicle_lanes.rows_of(watched(), training=COCOA, policy=BALANCED)
    assert len(rows) == 8
    figure = Figure()
    chicle_lanes.draw_all(rows, figure)
    lanes, chunks = figure.axes
    bars = [path.get_extents() for lane in lanes.collections for path in lane.get_paths()]
    assert lanes.get_xlim() == (0.0, 13.5)
    assert sorted((bar.x0, bar.x1) for bar in bars[:2]) == [(0.0, 4.0), (8.5, 13.5)]
    assert len(bars) == 8
    assert [list(patch.get_data().values) for patch in chunks.patches][3] == [4, 1]


def test_the_bound_of_a_speedup_is_computing_and_the_link() -> None:
    one = {
        **{"data_set": "criteo", "samples": 100, "bytes": 1_000_000, "alone": 0.11},
        **{"solve_alone": 0.1, "together": 0.08, "slowest": 0.06, "gather": 0.01, "sum": 0.02},
    }
    row = chicle_speedup.row_of(one, ranks=4, rate=1e9, cores=2)
    assert row["link"] == pytest.approx(12.0)  # 1.5 MB each way
    assert row["bound"] == pytest.approx(50 + 12)
    assert row["speedup"] == pytest.approx(0.11 / 0.08)
    assert row["of_bound"] == pytest.approx(62 / 80)


def test_rigid_overhead_is_the_median_of_pairs() -> None:
    claims = Claims()
    pairs = [("10gbit", 1.0), ("10gbit", 1.02), ("10gbit", 1.3), ("1gbit", 1.1)]
    chicle_rigid.claim([{"link": link, "ratio": ratio} for link, ratio in pairs], claims)
    assert claims["chicle.rigid_overhead"].value == 1.02
    assert claims["chicle.rigid_overhead"].target == 1.03
    assert (claims["chicle.rigid_overhead.1g"].value, len(claims)) == (1.1, 2)

"""What `trepak bench trace` makes of its measurements."""

from __future__ import annotations

import pytest

from trepak.scripts.bench import bench_trace
from trepak.scripts.bench.bench_trace import OFF, ON


def test_drift_of_the_machine_cancels_out() -> None:
    """Steps get slower all the time; those with a timeline take 1% more on the slower rank."""
    ranks = []
    for rank in range(2):
        rounds, now = [], 1.0
        for _ in range(4):
            times: dict[str, list[float]] = {ON: [], OFF: []}
            for _ in range(5):
                for method in (ON, OFF, OFF, ON):
                    times[method].append(now * (1.01 if method == ON else 1.0) * (1 + rank / 10))
                    now += 0.01
            rounds.append(times)
        ranks.append({"rounds": rounds, "bytes": 100.0 + rank})
    report = bench_trace.summarize(ranks, {})
    assert report.claims["trace.overhead"].value == pytest.approx(1.01, rel=1e-6)
    assert report.claims["trace.overhead"].met
    spread = next(row for row in report.rows if "standard_error" in row)
    assert spread["turns"] == 20
    assert spread["standard_error"] == pytest.approx(0.0, abs=1e-6)
    rows = [row for row in report.rows if "on_ms" in row]
    assert len(rows) == 4
    assert rows[0]["off_ms"] > 1100, "the slower rank's"


def test_standard_error_is_that_of_the_median() -> None:
    """Turns alternate between ratios of 0.9 and 1.1, around 1.0."""
    times = {
        ON: [ratio for i in range(100) for ratio in [0.9 + 0.1 * (i % 3)] * 2],
        OFF: [1.0] * 200,
    }
    report = bench_trace.summarize([{"rounds": [times], "bytes": 1.0}], {})
    spread = next(row for row in report.rows if "standard_error" in row)
    assert (spread["lower_quartile"], spread["upper_quartile"]) == pytest.approx((0.9, 1.1))
    assert spread["standard_error"] == pytest.approx(1.253 * 0.2 / 1.349 / 10)
    assert report.claims["trace.overhead"].value == pytest.approx(1.0)

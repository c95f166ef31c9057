"""A point of Fela's virtual time that runs for real, on two hosts of a lab."""

from __future__ import annotations

import pytest
from test_lab import needs_lab

import trepak.tf_plugins  # noqa: F401  (imports TensorFlow quietly)
from trepak.scripts.bench import fela_lab
from trepak.scripts.bench.fela_lab import Point
from trepak.scripts.bench.fela_setting import Setting


def point(way: str = "Fela", **others: float) -> Point:
    setting = Setting("vgg19", 8, (1, 1, 2), subset=1, workers=2)
    return Point(way, setting, shrink=10_000.0, stretch=1.0, iterations=3, **others)


def test_sleepers_come_by_turns() -> None:
    """The lab's rank i sleeps in iteration i, the ones that don't count among them."""
    assert point(delay=2.0).patterns == [(2.0, 0.0), (0.0, 2.0), (2.0, 0.0)]
    assert point(delay=2.0).virtual > point().virtual
    assert point("DP", delay=2.0).virtual == pytest.approx(point("DP").virtual + 2, rel=0.1)


@needs_lab
@pytest.mark.timeout(200)
def test_a_point_runs_in_the_lab() -> None:
    iterations, server = fela_lab.run(point())
    assert 0.9 < iterations["lab_to_virtual"] < 10, "not faster, whatever else the machine does"
    assert iterations["least"] <= iterations["lab"] <= iterations["most"]
    assert 0 < server["serving_ms"] < server["token_ms"]
    report = fela_lab.summarize([iterations, server], {})
    assert set(report.claims) == {
        "fela.virtual_time_off.fela.vgg19.8",
        "fela.scheduler_share.fela.vgg19.8",
        "fela.waiting_share.fela.vgg19.8",
    }

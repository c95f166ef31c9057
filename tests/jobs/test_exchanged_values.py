"""Variables of fewer bits than ranks exchange; cases in tests/workers."""

from __future__ import annotations

from conftest import Shown, shows


@shows({"pace-mpi-2": ["exchanged_values"], "gloo-2": ["exchanged_values"]})
def test_what_rounding_takes_away_is_kept(shown: Shown) -> None:
    shown.check()

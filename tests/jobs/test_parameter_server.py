"""The parameter servers over real flows, under both launchers; the cases are in tests/workers."""

from __future__ import annotations

from conftest import Shown, shows


@shows({"mpi-3": ["parameter_server"], "gloo-2": ["parameter_server"]})
def test_sums_travel_between_ranks(shown: Shown) -> None:
    shown.check()

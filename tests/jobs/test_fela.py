"""Fela on real ranks; cases in tests/workers."""

from __future__ import annotations

from conftest import Shown, shows


@shows({"fela-mpi-2": ["fela"], "fela-gloo-3": ["fela"]})
def test_fela(shown: Shown) -> None:
    shown.check(22)

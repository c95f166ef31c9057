"""Fela on real ranks; cases in tests/workers."""

from __future__ import annotations

from conftest import Shown, shows

WORKERS = ["fela", "fela_fit", "fela_ends", "fela_ssp"]
# Of "fela" some are made in a loop.
CASES = {"fela": 17, "fela_fit": 8, "fela_ends": 7, "fela_ssp": 10}


@shows({"fela-mpi-2": WORKERS, "fela-gloo-3": WORKERS})
def test_fela(shown: Shown) -> None:
    shown.check(CASES[shown.worker])

"""Chicle's chunks, moved between real ranks; see the worker of this name."""

from __future__ import annotations

from conftest import Shown, shows


@shows({"pace-mpi-2": ["chunks"], "pace-gloo-3": ["chunks"]})
def test_chunks(shown: Shown) -> None:
    shown.check()

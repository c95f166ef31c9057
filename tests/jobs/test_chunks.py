"""Chicle's chunks, moved between real ranks; see the worker of this name."""

from __future__ import annotations

from conftest import Shown, shows


@shows({"chicle-mpi-2": ["chunks"], "chicle-gloo-3": ["chunks"]})
def test_chunks(shown: Shown) -> None:
    shown.check()

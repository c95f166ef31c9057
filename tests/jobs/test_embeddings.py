"""Embedding tables over ranks; the cases are in tests/workers."""

from __future__ import annotations

from conftest import Shown, shows


@shows({"mpi-2": ["embedding_saving"], "gloo-3": ["embedding_saving"]})
def test_saving(shown: Shown) -> None:
    shown.check()

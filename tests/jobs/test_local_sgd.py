"""Local SGD: ranks that average what their steps have made; cases in tests/workers."""

from __future__ import annotations

from conftest import Shown, shows

WORKERS = ["local_sgd", "local_sgd_rules"]


@shows({"chicle-mpi-2": WORKERS, "chicle-gloo-3": WORKERS})
def test_local_sgd(shown: Shown) -> None:
    shown.check()

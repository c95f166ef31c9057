"""Gradients that the next step applies: the weights of one process; cases in tests/workers."""

from __future__ import annotations

from pathlib import Path

import pytest
from conftest import Shown, shows
from test_bsp import OPTIMIZERS, count_features
from test_geryon import check_every_feature


@shows({"lanes-mpi-2": ["exactness"], "lanes-gloo-3": ["exactness"]})
def test_weights_are_those_of_one_process(shown: Shown) -> None:
    shown.check(count_features(shown.plan.env["EXACTNESS_PART"]))


@shows({"lanes-mpi-2": ["overlap"]})
def test_promises(shown: Shown) -> None:
    shown.check()


@pytest.mark.soak
@pytest.mark.timeout(600)
@pytest.mark.parametrize("optimizer", OPTIMIZERS)
@pytest.mark.parametrize("gloo", [False, True], ids=["mpi", "gloo"])
@pytest.mark.parametrize("np", [2, 3])
def test_every_optimizer_and_feature(tmp_path: Path, np: int, gloo: bool, optimizer: str) -> None:
    check_every_feature(tmp_path, np, gloo, optimizer, "lanes overlap")

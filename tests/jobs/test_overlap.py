"""Gradients that the next step applies: the weights of one process; cases in tests/workers."""

from __future__ import annotations

from pathlib import Path

import pytest
from test_bsp import OPTIMIZERS
from test_geryon import check


@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    ("np", "gloo", "optimizer", "part", "workers"),
    [(2, False, "adam", "1/3", ["overlap"]), (3, True, "momentum", "2/3", [])],
    ids=["mpi-2", "gloo-3"],
)
def test_weights_are_those_of_one_process(
    tmp_path: Path, np: int, gloo: bool, optimizer: str, part: str, workers: list[str]
) -> None:
    check(tmp_path, np, gloo, optimizer, "lanes overlap", part, workers)


@pytest.mark.soak
@pytest.mark.timeout(600)
@pytest.mark.parametrize("optimizer", OPTIMIZERS)
@pytest.mark.parametrize("gloo", [False, True], ids=["mpi", "gloo"])
@pytest.mark.parametrize("np", [2, 3])
def test_every_optimizer_and_feature(tmp_path: Path, np: int, gloo: bool, optimizer: str) -> None:
    check(tmp_path, np, gloo, optimizer, "lanes overlap")

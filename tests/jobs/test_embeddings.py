"""Sven: the alltoall, tables over ranks, and the pipeline; see the workers of these names."""

from __future__ import annotations

from conftest import Shown, shows


@shows({"mpi-2": ["alltoall"], "gloo-3": ["alltoall"]})
def test_alltoall(shown: Shown) -> None:
    shown.check()


@shows({"mpi-3": ["embeddings"], "gloo-2": ["embeddings"]})
def test_embeddings(shown: Shown) -> None:
    """Tables begin alike on two and on three ranks: their sums are these."""
    shown.check()
    sums = {
        tuple(results["embeddings.they_begin_alike_on_any_number_of_ranks"]["value"])
        for results in shown.job.ranks
    }
    assert len(sums) == 1
    assert [round(value, 4) for value in sums.pop()] == [-0.5679, 0.851, -0.2031, -0.0114]


@shows({"mpi-2": ["pipeline"], "gloo-3": ["pipeline"]})
def test_pipeline(shown: Shown) -> None:
    shown.check()

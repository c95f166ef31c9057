"""Sven: the alltoall, tables over ranks, and the pipeline; see the workers of these names."""

from __future__ import annotations

from conftest import Shown, shows


@shows({job: ["alltoall"] for job in ("mpi-2", "gloo-3", "lanes-mpi-2", "lanes-gloo-3")})
def test_alltoall(shown: Shown) -> None:
    shown.check()


@shows({"mpi-3": ["embeddings"], "gloo-2": ["embeddings"]})
def test_embeddings(shown: Shown) -> None:
    shown.check()


@shows({"mpi-2": ["pipeline"], "gloo-3": ["pipeline"]})
def test_pipeline(shown: Shown) -> None:
    shown.check()


@shows({"mpi-2": ["pipeline_ends"], "gloo-3": ["pipeline_ends"]})
def test_ends_of_pipelines(shown: Shown) -> None:
    shown.check()


@shows({"mpi-2": ["readers"]})
def test_readers(shown: Shown) -> None:
    shown.check()


@shows({"gloo-2": ["embedding_tiers"]})
def test_tiers(shown: Shown) -> None:
    shown.check()

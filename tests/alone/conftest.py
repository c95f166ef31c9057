"""What the tests in here have in common: this process is a rank."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import trepak.keras as hvd


@pytest.fixture(scope="module", autouse=True)
def _one_rank() -> Iterator[None]:
    hvd.init()
    yield
    hvd.shutdown()


@pytest.fixture(autouse=True)
def nothing_is_left_to_jobs() -> None:
    """These tests have a process of their own, which starts no jobs."""

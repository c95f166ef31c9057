"""Dymem composes with what ranks do together."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest
from conftest import run_job

POOL = {"always_swap": True, "pool": "48MiB", "beyond": "1GiB", "checksums": True}


def ranks(out: Path, options: dict[str, Any] | None, sync: str, gloo: bool) -> list[dict[str, Any]]:
    """Returns what the ranks of one job tell."""
    out.mkdir()
    job = run_job(["dymem_ranks.py", json.dumps(options), sync], out, gloo=gloo)
    assert job.code == 0, job.output[-6000:]
    return job.ranks


@pytest.mark.parametrize(("sync", "gloo"), [("bsp", False), ("geryon", True)])
def test_ranks_in_pools_have_the_weights_of_ranks_without(
    sync: str, gloo: bool, tmp_path: Path
) -> None:
    plain, pooled = (
        ranks(tmp_path / name, options, sync, gloo)
        for name, options in (("plain", None), ("pooled", POOL))
    )
    assert len({told["weights"] for told in plain + pooled}) == 1
    for told in pooled:
        assert told["statistics"]["swaps"]["fetched_tensors"] > 100
        assert told["statistics"]["pool"]["failures"] == 0
        assert told["statistics"]["first_failure"] == ""


def test_rounds_of_rna_train_in_pools(tmp_path: Path) -> None:
    for told in ranks(tmp_path / "rna", POOL, "rna", gloo=False):
        assert all(math.isfinite(loss) for loss in told["losses"])
        assert told["statistics"]["swaps"]["fetched_tensors"] > 100
        assert told["statistics"]["first_failure"] == ""

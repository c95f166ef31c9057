"""Embedding tables beyond memory, and beyond the disk."""

from __future__ import annotations

import json
from pathlib import Path

from conftest import run_job


def test_a_table_of_twice_the_memory_limit_trains_in_a_folder(tmp_path: Path) -> None:
    job = run_job(["embedding_memory.py"], tmp_path, np=1)
    assert job.code == 0, job.output[-6000:]
    found = json.loads((tmp_path / "memory.json").read_text())
    assert f"no memory for {found['size'] // 256 * 256} bytes" in found["error"]
    for part in ("rank 0: embedding table 'huge'", "use more ranks", "folder="):
        assert part in found["error"]
    sparse, full = found["sparse"], found["full"]
    assert sparse["bytes"] > 1 << 29 and sparse["disk_bytes"] <= 200 * (1 << 18)
    assert full["disk_bytes"] > 0.9 * full["bytes"]
    assert full["fast_bytes"] <= 1 << 25

"""Embedding tables read, saved and loaded over ranks; the cases are in tests/workers."""

from __future__ import annotations

from pathlib import Path

from conftest import Shown, run_job, shows

SAVING = ["embedding_saving", "embedding_files", "embedding_checkpoints"]


@shows({"mpi-2": SAVING, "gloo-3": SAVING})
def test_saving(shown: Shown) -> None:
    shown.check()


def test_two_ranks_load_what_three_have_saved_before_one_was_killed(tmp_path: Path) -> None:
    folder = tmp_path / "tables"
    program = ["embedding_resumed.py", str(folder)]
    saved = run_job([*program, "save"], tmp_path / "save", np=3, gloo=True, seconds=120)
    assert saved.code != 0 and (tmp_path / "save" / "killed").exists(), saved.output[-4000:]
    loaded = run_job([*program, "load"], tmp_path / "load", np=2, seconds=120)
    assert loaded.code == 0, loaded.output[-4000:]
    assert [rank["tables"] for rank in loaded.ranks] == [4, 4]

"""Parts of files and datasets: together they are all samples, each once."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
import tensorflow as tf
from sklearn.datasets import dump_svmlight_file

from trepak import chicle
from trepak.tf_plugins.chicle import loading
from trepak.tf_plugins.chicle.cluster import OneProcess

SIZES = (1, 2, 3, 7)


class Ranks(OneProcess):
    """A rank of several, which exchanges nothing."""

    def __init__(self, rank: int, size: int) -> None:
        self.rank, self.size = rank, size


def parts(monkeypatch: pytest.MonkeyPatch, size: int, load: Any) -> list[Any]:
    found = []
    for rank in range(size):
        monkeypatch.setattr(loading, "cluster_of_job", lambda rank=rank: Ranks(rank, size))
        found.append(load())
    return found


def samples() -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    x = np.round(rng.normal(size=(50, 4)) * 10.0 ** rng.integers(-3, 4, (50, 1)), 6)
    return np.where(rng.random((50, 4)) < 0.5, x, 0), rng.integers(0, 3, 50).astype(float)


@pytest.mark.parametrize("size", SIZES)
def test_lines_of_libsvm(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, size: int) -> None:
    x, y = samples()
    path = tmp_path / "samples"
    dump_svmlight_file(x, y, str(path), zero_based=False)
    if size == 3:
        path.write_bytes(path.read_bytes().rstrip(b"\n"))
    found = parts(monkeypatch, size, lambda: chicle.load_libsvm(path, 4))
    np.testing.assert_array_equal(sp.vstack([one for one, _ in found]).toarray(), x)
    np.testing.assert_array_equal(np.concatenate([one for _, one in found]), y)


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("header", [True, False])
def test_lines_of_csv(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, size: int, header: bool
) -> None:
    x, y = samples()
    path = tmp_path / "samples.csv"
    table = np.column_stack([x[:, :1], y, x[:, 1:]])
    np.savetxt(path, table, delimiter=",", header="a,b,c,d,e" if header else "", comments="")
    found = parts(monkeypatch, size, lambda: chicle.load_csv(path, 1, "float32", header))
    np.testing.assert_array_equal(
        np.concatenate([one for one, _ in found if len(one)]), x.astype("float32")
    )
    np.testing.assert_array_equal(np.concatenate([one for _, one in found]), y)


@pytest.mark.parametrize("size", SIZES)
def test_rows_of_numpys_files(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, size: int) -> None:
    x, y = samples()
    np.save(tmp_path / "x.npy", x)
    np.save(tmp_path / "y.npy", y)
    files = [tmp_path / "x.npy", tmp_path / "y.npy"]
    found = parts(monkeypatch, size, lambda: chicle.load_npy(*files))
    for whole, some in zip((x, y), zip(*found, strict=True), strict=True):
        np.testing.assert_array_equal(np.concatenate(some), whole)


def test_samples_of_a_dataset(monkeypatch: pytest.MonkeyPatch) -> None:
    x, y = samples()
    dataset = tf.data.Dataset.from_tensor_slices(({"x": x}, y))
    found = parts(monkeypatch, 3, lambda: chicle.load_dataset(dataset))
    assert sorted(np.concatenate([one[0]["x"][:, 0] for one in found])) == sorted(x[:, 0])
    assert [len(one[1]) for one in found] == [17, 17, 16]
    with pytest.raises(ValueError, match="rank 50 gets no samples"):
        parts(monkeypatch, 60, lambda: chicle.load_dataset(dataset))


def test_files_that_are_wrong_are_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    path = tmp_path / "wrong"
    path.write_text("1 1:2\n0 9:1\n")
    with pytest.raises(ValueError, match="wrong: "):
        chicle.load_libsvm(path, 4)
    path.write_text("1,2\n3,x\n")
    with pytest.raises(ValueError, match="rank [0-9] of 5 has no line of .*: start fewer ranks"):
        parts(monkeypatch, 5, lambda: chicle.load_csv(path, skip_header=True))
    monkeypatch.undo()
    with pytest.raises(ValueError, match="wrong: could not convert"):
        chicle.load_csv(path)
    np.save(tmp_path / "a.npy", np.zeros(3))
    np.save(tmp_path / "b.npy", np.zeros(4))
    with pytest.raises(ValueError, match="as many rows"):
        chicle.load_npy(tmp_path / "a.npy", tmp_path / "b.npy")
    with pytest.raises(FileNotFoundError):
        chicle.load_csv(tmp_path / "none")

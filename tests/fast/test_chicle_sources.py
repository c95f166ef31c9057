"""Parts of files and datasets: together they are all samples, each once."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
import tensorflow as tf
from sklearn.datasets import dump_svmlight_file

import trepak.glm
from trepak import chicle

SIZES = (1, 2, 3, 7)


def parts(source: chicle.Source, size: int) -> list[Any]:
    return [source.read(part, size) for part in range(size)]


def samples() -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    x = np.round(rng.normal(size=(50, 4)) * 10.0 ** rng.integers(-3, 4, (50, 1)), 6)
    return np.where(rng.random((50, 4)) < 0.5, x, 0), rng.integers(0, 3, 50).astype(float)


@pytest.mark.parametrize("size", SIZES)
def test_lines_of_libsvm(tmp_path: Path, size: int) -> None:
    x, y = samples()
    path = tmp_path / "samples"
    dump_svmlight_file(x, y, str(path), zero_based=False)
    if size == 3:
        path.write_bytes(path.read_bytes().rstrip(b"\n"))
    found = parts(chicle.LibsvmFile(path, 4), size)
    np.testing.assert_array_equal(sp.vstack([one for one, _ in found]).toarray(), x)
    np.testing.assert_array_equal(np.concatenate([one for _, one in found]), y)


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("header", [True, False])
def test_lines_of_csv(tmp_path: Path, size: int, header: bool) -> None:
    x, y = samples()
    path = tmp_path / "samples.csv"
    table = np.column_stack([x[:, :1], y, x[:, 1:]])
    np.savetxt(path, table, delimiter=",", header="a,b,c,d,e" if header else "", comments="")
    found = parts(chicle.CsvFile(path, 1, "float32", header), size)
    np.testing.assert_array_equal(
        np.concatenate([one for one, _ in found if len(one)]), x.astype("float32")
    )
    np.testing.assert_array_equal(np.concatenate([one for _, one in found]), y)


@pytest.mark.parametrize("size", SIZES)
def test_rows_of_numpys_files(tmp_path: Path, size: int) -> None:
    x, y = samples()
    np.save(tmp_path / "x.npy", x)
    np.save(tmp_path / "y.npy", y)
    files = [tmp_path / "x.npy", tmp_path / "y.npy"]
    found = parts(chicle.NpyFiles(*files), size)
    for whole, some in zip((x, y), zip(*found, strict=True), strict=True):
        np.testing.assert_array_equal(np.concatenate(some), whole)


def test_samples_of_a_dataset() -> None:
    x, y = samples()
    dataset = tf.data.Dataset.from_tensor_slices(({"x": x}, y))
    found = parts(chicle.DatasetSamples(dataset), 3)
    assert sorted(np.concatenate([one[0]["x"][:, 0] for one in found])) == sorted(x[:, 0])
    assert [len(one[1]) for one in found] == [17, 17, 16]
    with pytest.raises(ValueError, match="part 50 of 60 of a dataset has no samples"):
        parts(chicle.DatasetSamples(dataset), 60)


def test_files_that_are_wrong_are_named(tmp_path: Path) -> None:
    path = tmp_path / "wrong"
    path.write_text("1 1:2\n0 9:1\n")
    with pytest.raises(ValueError, match="wrong: "):
        chicle.LibsvmFile(path, 4).mine()
    path.write_text("1,2\n3,x\n")
    with pytest.raises(ValueError, match="no line of .* in part [0-9] of 5: start fewer ranks"):
        parts(chicle.CsvFile(path, skip_header=True), 5)
    with pytest.raises(ValueError, match="wrong: could not convert"):
        chicle.CsvFile(path).mine()
    np.save(tmp_path / "a.npy", np.zeros(3))
    np.save(tmp_path / "b.npy", np.zeros(4))
    with pytest.raises(ValueError, match="as many rows"):
        chicle.NpyFiles(tmp_path / "a.npy", tmp_path / "b.npy")
    with pytest.raises(FileNotFoundError):
        chicle.CsvFile(tmp_path / "none").mine()


@pytest.mark.parametrize("size", SIZES)
def test_rows_of_arrays(size: int) -> None:
    x, y = samples()
    found = parts(chicle.Arrays(sp.csr_array(x), y), size)
    np.testing.assert_array_equal(sp.vstack([one for one, _ in found]).toarray(), x)
    np.testing.assert_array_equal(np.concatenate([one for _, one in found]), y)
    with pytest.raises(ValueError, match="as many rows"):
        chicle.Arrays(x, y[1:])


class Odd(chicle.Source):
    """Returns what it was given."""

    def __init__(self, read: Any) -> None:
        self._read = read

    def read(self, part: int, parts: int) -> Any:
        return self._read


def test_what_a_source_returns_is_checked() -> None:
    x, y = np.random.default_rng(0).normal(size=(50, 4)), np.arange(50) / 50
    for read in (None, (), (x, y, None, None)):
        with pytest.raises(ValueError, match=r"Odd.read returned [014] values, .*return samples,"):
            trepak.glm.Ridge().fit(Odd(read))
    for some in (Odd(x), Odd((x,)), chicle.Arrays(x)):
        with pytest.raises(ValueError, match="requires y to be passed"):
            trepak.glm.Ridge().fit(some)
    weighted = trepak.glm.Ridge(random_state=0).fit(Odd((x, y, np.ones(len(x)))))
    plain = trepak.glm.Ridge(random_state=0).fit(chicle.Arrays(x, y))
    np.testing.assert_array_equal(weighted.coef_, plain.coef_)

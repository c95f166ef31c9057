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


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"features": 4}, "a line has column 0, and columns count from 1: give zero_based=True"),
        (
            {"features": 3, "zero_based": True},
            "column 3, .*columns 0 to 2: give features=4 .*1",
        ),
        ({"features": 0}, "features must be a whole number above 0, got 0"),
        ({"features": "4"}, "features must be a whole number above 0, got '4'"),
    ],
)
def test_columns_of_libsvm_that_do_not_fit_are_named(
    tmp_path: Path, options: dict[str, Any], said: str
) -> None:
    x, y = samples()
    path = tmp_path / "from_0.svm"
    dump_svmlight_file(x, y, str(path))  # columns from 0 on
    with pytest.raises(ValueError, match=f"from_0.svm: .*{said}"):
        chicle.LibsvmFile(path, **options).mine()
    found, _ = chicle.LibsvmFile(path, 5, zero_based=True).mine()
    np.testing.assert_array_equal(found.toarray(), np.column_stack([x, np.zeros(50)]))
    dump_svmlight_file(x, y, str(path), zero_based=False)
    with pytest.raises(ValueError, match="column 4, .*columns 1 to 3: give features=4 at least.$"):
        chicle.LibsvmFile(path, 3).mine()


@pytest.mark.parametrize("text", ["1 a:3", "1 -1:3", "1 2:3 1:4", "1 99999999999:3", "1,2 1:3"])
def test_lines_of_libsvm_that_are_wrong_name_the_file(tmp_path: Path, text: str) -> None:
    path = tmp_path / "wrong.svm"
    path.write_text(f"{text}\n")
    with pytest.raises(ValueError, match="wrong.svm: .*[^.]. Lines must be a target and pairs"):
        chicle.LibsvmFile(path, 4).mine()


@pytest.mark.parametrize("target", [5, 99, -6])
def test_a_target_that_is_no_column_is_named(tmp_path: Path, target: int) -> None:
    path = tmp_path / "five.csv"
    path.write_text("1,2,3,4,5\n")
    with pytest.raises(ValueError, match=f"five.csv: .*target={target}, .* 5: give 0 to 4, or -1"):
        chicle.CsvFile(path, target).mine()
    with pytest.raises(ValueError, match="five.csv: target must be .* a column, got 'y'"):
        chicle.CsvFile(path, "y")  # type: ignore[arg-type]


def test_lines_of_csv_that_are_wrong_name_the_file(tmp_path: Path) -> None:
    path = tmp_path / "wrong.csv"
    for text in (b"a,b\n1,2\n", b"1,2\n3\n", b"\xff\xfe1,2\n"):
        path.write_bytes(text)
        with pytest.raises(ValueError, match="wrong.csv: .*[^.]. Lines must be .*skip_header=True"):
            chicle.CsvFile(path).mine()
    path.write_text("")
    with pytest.raises(ValueError, match="wrong.csv in part 0 of 1: give a file that has samples"):
        chicle.CsvFile(path).mine()


def test_files_that_np_save_did_not_write_are_named(tmp_path: Path) -> None:
    path = tmp_path / "wrong.npy"
    np.save(path, np.zeros((50, 4)))
    whole = path.read_bytes()
    np.save(path, np.array([1, "a", None], object), allow_pickle=True)
    for data in (path.read_bytes(), b"1,2\n3,4\n", b"", whole[:300]):
        path.write_bytes(data)
        with pytest.raises(ValueError, match="wrong.npy: .*Give files that np.save") as caught:
            chicle.NpyFiles(path)
        assert "pickle" not in str(caught.value)


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
        name = type(some).__name__
        with pytest.raises(ValueError, match=f"^{name} gives samples without targets.*Arrays.x, y"):
            trepak.glm.Ridge().fit(some)
    weighted = trepak.glm.Ridge(random_state=0).fit(Odd((x, y, np.ones(len(x)))))
    plain = trepak.glm.Ridge(random_state=0).fit(chicle.Arrays(x, y))
    np.testing.assert_array_equal(weighted.coef_, plain.coef_)

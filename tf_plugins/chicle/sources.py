"""Where samples come from: parts of arrays, of files, and of tf.data datasets.

All parts together are all samples, each once. Any rank can read any part, at any time: so chunks
that were lost with a rank are read again by others. Parts of text files are about equal in bytes.
"""

from __future__ import annotations

import abc
import io
import numbers
import os
from pathlib import Path
from typing import Any

import numpy as np

from trepak.tf_plugins.chicle.cluster import cluster_of_job


class Source(abc.ABC):
    """Samples that can be read in parts, the same ones each time."""

    @abc.abstractmethod
    def read(self, part: int, parts: int) -> Any:
        """Returns a part of the samples, by default as (x, y).

        Args:
            part: which one, from 0 on.
            parts: how many there are.
        """

    def samples(self, part: int, parts: int) -> tuple[Any, Any, Any]:
        """Returns a part as (x, y, sample_weight); None stands for what there is not.

        Args:
            part: which one, from 0 on.
            parts: how many there are.

        Raises:
            ValueError: `read` returned something else.
        """
        read = self.read(part, parts)
        given = tuple(read) if isinstance(read, tuple | list) else (read,)
        if not 1 <= len(given) <= 3 or given[0] is None:
            raise ValueError(
                f"{type(self).__name__}.read returned {len(given)} values, the first of type "
                f"{type(given[0]).__name__ if given else None}: return samples, or a tuple of "
                "samples, targets and perhaps weights."
            )
        x, y, sample_weight = (*given, None, None)[:3]
        return x, y, sample_weight

    def mine(self) -> Any:
        """Returns the part that this rank reads, of as many as there are ranks."""
        cluster = cluster_of_job()
        return self.read(cluster.rank, cluster.size)


class Arrays(Source):
    """Samples that all ranks have in memory, all of them."""

    def __init__(self, *arrays: Any) -> None:
        """Keeps the arrays.

        Args:
            arrays: of as many rows each, e.g. samples and targets; SciPy's sparse matrices, too.

        Raises:
            ValueError: they differ in their rows.
        """
        lengths = [array.shape[0] for array in arrays]
        if len(set(lengths)) != 1:
            raise ValueError(f"arrays of the same samples have as many rows, got {lengths}.")
        self._arrays = arrays

    def read(self, part: int, parts: int) -> tuple[Any, ...]:
        """See `Source`."""
        begin, end = _part(self._arrays[0].shape[0], part, parts)
        return tuple(array[begin:end] for array in self._arrays)


class NpyFiles(Source):
    """Arrays in files that `np.save` wrote; no rank reads them whole."""

    def __init__(self, *paths: str | Path) -> None:
        """Looks at the files.

        Args:
            paths: of arrays of as many rows each, e.g. of samples and targets.

        Raises:
            FileNotFoundError: there is no such file.
            ValueError: they differ in their rows, or one is no array of numbers with rows.
        """
        self._arrays = [_mapped(path) for path in paths]
        lengths = {str(path): np.shape(a)[:1] for path, a in zip(paths, self._arrays, strict=True)}
        if len(set(lengths.values())) != 1 or () in lengths.values():
            raise ValueError(f"files of the same samples have as many rows: {lengths}.")

    def read(self, part: int, parts: int) -> tuple[np.ndarray, ...]:
        """See `Source`."""
        begin, end = _part(len(self._arrays[0]), part, parts)
        return tuple(np.array(array[begin:end]) for array in self._arrays)


class LibsvmFile(Source):
    """Lines of LIBSVM's format: a target and pairs `column:value`."""

    def __init__(
        self, path: str | Path, features: int, dtype: Any = np.float64, zero_based: bool = False
    ) -> None:
        """Keeps where to read.

        Args:
            path: of the file.
            features: columns of a sample, whatever lines are read.
            dtype: of the values: float32 or float64.
            zero_based: whether columns count from 0, as scikit-learn's `dump_svmlight_file` writes
                them by default; LIBSVM's count from 1.

        Raises:
            ValueError: `features` is no whole number above 0.
        """
        if not _is_whole(features) or features < 1:
            raise ValueError(f"{path}: features must be a whole number above 0, got {features!r}.")
        self._path, self._features = Path(path), features
        self._dtype, self._zero_based = dtype, zero_based

    def read(self, part: int, parts: int) -> tuple[Any, np.ndarray]:
        """Returns a part: a SciPy CSR matrix, and the targets, of float64.

        Raises:
            FileNotFoundError: there is no such file.
            ValueError: a line is no sample, or has a column before or beyond the features; or there
                is no line.
        """
        from sklearn.datasets import load_svmlight_file

        lines = io.BytesIO(_lines(self._path, part, parts))
        try:
            rows, targets = load_svmlight_file(lines, dtype=self._dtype, zero_based=True)
        except (ValueError, OverflowError) as error:
            remedy = "Lines must be a target and pairs column:value, in the order of columns."
            raise _wrong(self._path, error, remedy) from error
        self._place(rows)
        if rows.nnz <= np.iinfo(np.int32).max:  # estimators take no wider ones
            rows.indices, rows.indptr = (a.astype(np.int32) for a in (rows.indices, rows.indptr))
        return rows, targets

    def _place(self, rows: Any) -> None:
        """Has columns count from 0, and be as many as the features."""
        first = 0 if self._zero_based else 1
        if rows.indices.min(initial=first) < first:
            raise ValueError(
                f"{self._path}: a line has column 0, and columns count from 1: give "
                "zero_based=True if they count from 0 in this file."
            )
        last = int(rows.indices.max(initial=first))
        if last - first >= self._features:
            or_else = ", or leave out zero_based=True if they count from 1" * self._zero_based
            raise ValueError(
                f"{self._path}: a line has column {last}, and features={self._features} are the "
                f"columns {first} to {self._features - 1 + first}: give "
                f"features={last - first + 1} at least{or_else}."
            )
        rows.indices -= first
        rows.resize(rows.shape[0], self._features)


class CsvFile(Source):
    """Lines of numbers with commas between them."""

    def __init__(
        self, path: str | Path, target: int = -1, dtype: Any = np.float64, skip_header: bool = False
    ) -> None:
        """Keeps where to read.

        Args:
            path: of the file.
            target: the number of the column that is to be predicted, from 0 on, or from the last
                one, -1, back; the others are features.
            dtype: of the features: float32 or float64.
            skip_header: whether the first line has names.

        Raises:
            ValueError: `target` is no whole number.
        """
        if not _is_whole(target):
            raise ValueError(f"{path}: target must be the number of a column, got {target!r}.")
        self._path, self._target = Path(path), target
        self._dtype, self._skip_header = dtype, skip_header

    def read(self, part: int, parts: int) -> tuple[np.ndarray, np.ndarray]:
        """Returns a part: the samples [lines, columns - 1], and the targets, of float64.

        Raises:
            FileNotFoundError: there is no such file.
            ValueError: a line has other columns than the first one, or what is no number; or there
                is no line, or no column `target`.
        """
        text = _lines(self._path, part, parts, self._skip_header)
        try:
            table = np.loadtxt(io.StringIO(text.decode()), delimiter=",", ndmin=2, comments=None)
        except ValueError as error:
            remedy = (
                "Lines must be as many numbers each, with commas between them; skip_header=True "
                "leaves out a line of names."
            )
            raise _wrong(self._path, error, remedy) from error
        columns = table.shape[1]
        if not -columns <= self._target < columns:
            raise ValueError(
                f"{self._path}: there is no column target={self._target}, since lines have "
                f"{columns}: give 0 to {columns - 1}, or -1 for the last one."
            )
        samples = np.delete(table, self._target, axis=1).astype(self._dtype)
        return samples, table[:, self._target].copy()


class DatasetSamples(Source):
    """The elements of a tf.data dataset, which gives the same ones each time."""

    def __init__(self, dataset: Any) -> None:
        """Keeps the dataset.

        Args:
            dataset: of single samples, not of batches; the same on all ranks.
        """
        self._dataset = dataset

    def read(self, part: int, parts: int) -> Any:
        """Returns a part, in memory.

        Returns:
            What the dataset's elements are made of, each array with one more dimension, of samples.

        Raises:
            ValueError: there are no samples in this part.
        """
        import tensorflow as tf

        found = [*self._dataset.shard(parts, part).as_numpy_iterator()]
        if not found:
            raise ValueError(f"part {part} of {parts} of a dataset has no samples.")
        return tf.nest.map_structure(lambda *each: np.stack(each), *found)


def _mapped(path: str | Path) -> np.ndarray:
    """Returns an array of a file, which is read where it is used."""
    try:
        return np.lib.format.open_memmap(path, mode="r")
    except ValueError as error:
        remedy = "Give files that np.save wrote, each of an array of numbers."
        raise _wrong(path, error, remedy) from error


def _is_whole(value: Any) -> bool:
    return isinstance(value, numbers.Integral)


def _wrong(path: str | Path, error: Exception, remedy: str) -> ValueError:
    return ValueError(f"{path}: {str(error).rstrip('.')}. {remedy}")


def _part(length: int, part: int, parts: int) -> tuple[int, int]:
    """Returns where a part of something begins and ends."""
    return length * part // parts, length * (part + 1) // parts


def _lines(path: Path, part: int, parts: int, skip_first: bool = False) -> bytes:
    """Returns the lines of a file that begin in a part of it."""
    begin, end = _part(os.path.getsize(path), part, parts)
    with path.open("rb") as file:
        if begin > 0:
            file.seek(begin - 1)
            file.readline()  # of the part before, unless a line begins here
        elif skip_first:
            file.readline()
        at = file.tell()
        text = file.read(max(0, end - at))
        if text and not text.endswith(b"\n"):
            text += file.readline()  # of the next part
    if not text.strip():
        remedy = "start fewer ranks" if parts > 1 else "give a file that has samples"
        raise ValueError(f"there is no line of {path} in part {part} of {parts}: {remedy}.")
    return text

"""Where samples come from: parts of arrays, of files, and of tf.data datasets.

All parts together are all samples, each once. Any rank can read any part, at any time: so chunks
that were lost with a rank are read again by others. Parts of text files are about equal in bytes.
"""

from __future__ import annotations

import abc
import io
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
        given = read if isinstance(read, tuple) else (read,)
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
            ValueError: they differ in their rows, or one has none.
        """
        self._arrays = [np.load(path, mmap_mode="r") for path in paths]
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
            zero_based: whether columns count from 0; LIBSVM's count from 1.
        """
        self._path, self._features = Path(path), features
        self._dtype, self._zero_based = dtype, zero_based

    def read(self, part: int, parts: int) -> tuple[Any, np.ndarray]:
        """Returns a part: a SciPy CSR matrix, and the targets, of float64.

        Raises:
            FileNotFoundError: there is no such file.
            ValueError: a line is no sample, has a column beyond the features, or there is none.
        """
        from sklearn.datasets import load_svmlight_file

        lines = io.BytesIO(_lines(self._path, part, parts))
        try:
            rows, targets = load_svmlight_file(
                lines, n_features=self._features, dtype=self._dtype, zero_based=self._zero_based
            )
        except ValueError as error:
            raise ValueError(f"{self._path}: {error}") from error
        if rows.nnz <= np.iinfo(np.int32).max:  # estimators take no wider ones
            rows.indices, rows.indptr = (a.astype(np.int32) for a in (rows.indices, rows.indptr))
        return rows, targets


class CsvFile(Source):
    """Lines of numbers with commas between them."""

    def __init__(
        self, path: str | Path, target: int = -1, dtype: Any = np.float64, skip_header: bool = False
    ) -> None:
        """Keeps where to read.

        Args:
            path: of the file.
            target: which column is what is to be predicted; the others are features.
            dtype: of the features: float32 or float64.
            skip_header: whether the first line has names.
        """
        self._path, self._target = Path(path), target
        self._dtype, self._skip_header = dtype, skip_header

    def read(self, part: int, parts: int) -> tuple[np.ndarray, np.ndarray]:
        """Returns a part: the samples [lines, columns - 1], and the targets, of float64.

        Raises:
            FileNotFoundError: there is no such file.
            ValueError: a line has other columns than the first one, or what is no number, or there
                is no line.
        """
        text = _lines(self._path, part, parts, self._skip_header).decode()
        try:
            table = np.loadtxt(io.StringIO(text), delimiter=",", ndmin=2, comments=None)
        except ValueError as error:
            raise ValueError(f"{self._path}: {error}") from error
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
        raise ValueError(
            f"there is no line of {path} in part {part} of {parts}: start fewer ranks."
        )
    return text

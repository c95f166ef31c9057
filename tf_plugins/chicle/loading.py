"""Reads this rank's part of samples: of NumPy's, LIBSVM's and CSV files, and of a tf.data dataset.

All parts together are all samples, each once. Parts of text files are about equal in bytes.
"""

from __future__ import annotations

import io
import os
from pathlib import Path
from typing import Any

import numpy as np

from trepak.tf_plugins.chicle.cluster import Cluster, cluster_of_job


def load_npy(*paths: str | Path) -> tuple[np.ndarray, ...]:
    """Returns this rank's rows of arrays in files, which are not read whole.

    Args:
        paths: of files that `np.save` wrote, of as many rows each, e.g. of samples and targets.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: they differ in their rows, or one has none.
    """
    arrays = [np.load(path, mmap_mode="r") for path in paths]
    lengths = {str(path): np.shape(a)[:1] for path, a in zip(paths, arrays, strict=True)}
    if len(set(lengths.values())) != 1 or () in lengths.values():
        raise ValueError(f"files of the same samples have as many rows: {lengths}.")
    begin, end = _part(len(arrays[0]), cluster_of_job())
    return tuple(np.array(array[begin:end]) for array in arrays)


def load_libsvm(
    path: str | Path, features: int, dtype: Any = np.float64, zero_based: bool = False
) -> tuple[Any, np.ndarray]:
    """Returns this rank's lines of a file of LIBSVM's format.

    Args:
        path: of the file: a line is a target and pairs `column:value`.
        features: columns of a sample; the same on all ranks, whatever lines they read.
        dtype: of the values: float32 or float64.
        zero_based: whether columns count from 0; LIBSVM's count from 1.

    Returns:
        The samples, a SciPy CSR matrix, and the targets, of float64.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: a line is no sample, has a column beyond the features, or this rank has none.
    """
    from sklearn.datasets import load_svmlight_file

    part = io.BytesIO(_lines(Path(path)))
    try:
        return load_svmlight_file(  # type: ignore[no-any-return]
            part, n_features=features, dtype=dtype, zero_based=zero_based
        )
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from error


def load_csv(
    path: str | Path, target: int = -1, dtype: Any = np.float64, skip_header: bool = False
) -> tuple[np.ndarray, np.ndarray]:
    """Returns this rank's lines of a file of numbers with commas between them.

    Args:
        path: of the file.
        target: which column is what is to be predicted; the others are features.
        dtype: of the features: float32 or float64.
        skip_header: whether the first line has names.

    Returns:
        The samples [lines, columns - 1], and the targets, of float64.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: a line has other columns than the first one, or what is no number, or this rank
            has no line.
    """
    text = _lines(Path(path), skip_header).decode()
    try:
        table = np.loadtxt(io.StringIO(text), delimiter=",", ndmin=2, comments=None)
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from error
    return np.delete(table, target, axis=1).astype(dtype), table[:, target].copy()


def load_dataset(dataset: Any) -> Any:
    """Returns this rank's samples of a tf.data dataset, in memory.

    Args:
        dataset: of single samples, not of batches; the same on all ranks.

    Returns:
        What the dataset's elements are made of, each array with one more dimension, of samples.
    """
    import tensorflow as tf

    cluster = cluster_of_job()
    mine = [*dataset.shard(cluster.size, cluster.rank).as_numpy_iterator()]
    if not mine:
        raise ValueError(
            f"rank {cluster.rank} gets no samples of a dataset of fewer than {cluster.size}."
        )
    return tf.nest.map_structure(lambda *parts: np.stack(parts), *mine)


def _part(length: int, cluster: Cluster) -> tuple[int, int]:
    """Returns where this rank's part of something begins and ends."""
    return length * cluster.rank // cluster.size, length * (cluster.rank + 1) // cluster.size


def _lines(path: Path, skip_first: bool = False) -> bytes:
    """Returns the lines of a file that begin in this rank's part of it."""
    cluster = cluster_of_job()
    begin, end = _part(os.path.getsize(path), cluster)
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
            f"rank {cluster.rank} of {cluster.size} has no line of {path} to read: start fewer "
            "ranks."
        )
    return text

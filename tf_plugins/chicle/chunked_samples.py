"""What a ChunkedDataset is given: arrays in a structure, as `fit` takes them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import keras
import numpy as np
import tensorflow as tf


class Structure:
    """How samples are put together: tuples and dicts of arrays, each with a dtype and a shape.

    Attributes:
        names: of the arrays, in order: of their fields in chunks.
    """

    def __init__(self, like: Any) -> None:
        """Keeps it.

        Args:
            like: tuples and dicts, with a `Kind` for each array.
        """
        self._like = like
        self.names = [str(place) for place, _ in enumerate(keras.tree.flatten(like))]

    @classmethod
    def of(cls, given: Any) -> Structure:
        """Returns that of arrays."""
        return cls(keras.tree.map_structure(lambda a: Kind(str(a.dtype), a.shape[1:]), given))

    @classmethod
    def read(cls, told: str) -> Structure:
        """Returns what `told` has described."""
        return cls(_read(json.loads(told)))

    def told(self) -> str:
        """Returns a description, the same for the same structure."""
        return json.dumps(_told(self._like))

    def signature(self) -> Any:
        """Returns what tf.data calls the signature of batches, of any length."""
        return keras.tree.map_structure(lambda kind: kind.spec(), self._like)

    def fields(self, given: Any) -> dict[str, np.ndarray]:
        """Returns arrays of this structure by their fields' names."""
        return dict(zip(self.names, keras.tree.flatten(given), strict=True))

    def packed(self, arrays: Sequence[np.ndarray]) -> Any:
        """Returns arrays in this structure."""
        return keras.tree.pack_sequence_as(self._like, arrays)


class Kind:
    """What stands for an array in a structure of them."""

    def __init__(self, dtype: str, shape: tuple[int, ...]) -> None:
        """Keeps the dtype of an array, and the shape of a sample."""
        self.dtype, self.shape = dtype, tuple(shape)

    def spec(self) -> tf.TensorSpec:
        """Returns what describes batches of it."""
        return tf.TensorSpec([None, *self.shape], self.dtype)


def given(x: Any, y: Any, sample_weight: Any) -> Any:
    """Returns arrays in the structure in which `fit` wants them.

    Raises:
        ValueError: something is no array of samples.
    """
    if sample_weight is not None and y is None:
        raise ValueError("sample_weight weighs the losses of targets: give y as well.")
    parts = tuple(part for part in (x, y, sample_weight) if part is not None)
    if not parts or parts[0] is not x:
        raise ValueError("x must be an array of samples, or a structure of arrays, got None.")
    names = ("x", "y", "sample_weight")
    return tuple(_arrays(part, name) for part, name in zip(parts, names, strict=False))


def _arrays(part: Any, name: str) -> Any:
    if isinstance(part, dict):
        return {key: _arrays(value, f"{name}[{key!r}]") for key, value in part.items()}
    if isinstance(part, tuple | list):  # tf.data takes a list for a tensor
        return tuple(_arrays(value, f"{name}[{place}]") for place, value in enumerate(part))
    if hasattr(part, "tocsr"):
        raise ValueError(f"{name} is a sparse matrix: give dense arrays.")
    array = np.asarray(part)
    if not array.ndim:
        raise ValueError(f"{name} must be an array with one entry per sample, got {part!r}.")
    return array.astype(keras.config.floatx()) if array.dtype == np.float64 else array


def _told(like: Any) -> Any:
    if isinstance(like, Kind):
        return [like.dtype, list(like.shape)]
    if isinstance(like, dict):
        return {key: _told(value) for key, value in like.items()}
    return {"": [_told(part) for part in like]}  # a tuple; no input of Keras has an empty name


def _read(told: Any) -> Any:
    if isinstance(told, list):
        return Kind(told[0], tuple(told[1]))
    if "" in told:
        return tuple(_read(part) for part in told[""])
    return {key: _read(value) for key, value in told.items()}


def check_alike(facts: Sequence[dict[str, str]]) -> None:
    """Raises ValueError where ranks, by rank, were given different things."""
    for rank, theirs in enumerate(facts):
        for name, value in facts[0].items():
            if theirs[name] != value:
                raise ValueError(
                    f"rank 0 makes a ChunkedDataset with {name} = {value}, rank {rank} one with "
                    f"{theirs[name]}: give all ranks the same."
                )

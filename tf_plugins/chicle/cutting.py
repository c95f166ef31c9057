"""Cuts samples into chunks of at most a given size (Chicle, section 4.4)."""

from __future__ import annotations

import itertools
from collections.abc import Container, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from trepak.tf_plugins.chicle.chunk import Chunk, Field, chunk_bytes

CHUNK_BYTES = 1 << 20  # as the paper has them for linear models
_COLUMN_BYTES = 4
_START_BYTES = 8


class Cutting:
    """How samples are cut into chunks, each as full as consecutive samples let it be.

    Attributes:
        sizes: by chunk, how many samples it will have.
    """

    def __init__(
        self, samples: Mapping[str, Any], state: Sequence[Field] = (), size: int = CHUNK_BYTES
    ) -> None:
        """Finds where to cut.

        Args:
            samples: by name, an array with one entry per sample, or a SciPy sparse matrix with one
                row.
            state: further fields, which begin with zeros.
            size: bytes of a chunk, at most.

        Raises:
            ValueError: they are of different numbers of samples, a sparse matrix is wrong, or one
                sample does not fit in a chunk.
            TypeError: chunks can't hold the dtype.
        """
        self._columns = {name: _Column(name, values) for name, values in samples.items()}
        lengths = {name: column.length for name, column in self._columns.items()}
        if len(set(lengths.values())) != 1:
            raise ValueError(f"the fields of samples differ in how many there are: {lengths}.")
        length = next(iter(lengths.values()))
        self._fields = [*(column.field for column in self._columns.values()), *state]
        ends = [*_ends(self._columns, state, self._fields, length, size)]
        self.sizes = [end - begin for begin, end in itertools.pairwise([0, *ends])]

    def chunks(self, first_id: int = 0, only: Container[int] | None = None) -> Iterator[Chunk]:
        """Yields the chunks, in order, with ids from this one on; only those of some ids."""
        end = 0
        for number, count in enumerate(self.sizes, first_id):
            begin, end = end, end + count
            if only is not None and number not in only:
                continue
            sized = [
                self._columns[f.name].sized(begin, end) if f.name in self._columns else f
                for f in self._fields
            ]
            chunk = Chunk.make(number, count, sized)
            for column in self._columns.values():
                column.fill(chunk, begin, end)
            yield chunk


class _Column:
    """One field of all samples."""

    def __init__(self, name: str, values: Any) -> None:
        self._is_sparse = hasattr(values, "tocsr")
        self._values: Any = _canonical(values) if self._is_sparse else np.asarray(values)
        self.length = self._values.shape[0]
        self.field = Field(
            name, self._values.dtype, self._values.shape[1:], is_sparse=self._is_sparse
        )

    def bytes_of_each(self) -> Any:
        """Returns how many bytes each sample takes: an array, or one number for all."""
        if self._is_sparse:
            each = _COLUMN_BYTES + self._values.dtype.itemsize
            return np.diff(self._values.indptr).astype(np.int64) * each + _START_BYTES
        return _bytes_of(self.field)

    def sized(self, begin: int, end: int) -> Field:
        """Returns the field of a chunk with these samples."""
        if not self._is_sparse:
            return self.field
        starts = self._values.indptr
        return replace(self.field, nonzeros=int(starts[end] - starts[begin]))

    def fill(self, chunk: Chunk, begin: int, end: int) -> None:
        """Copies these samples into a chunk."""
        name = self.field.name
        if not self._is_sparse:
            chunk.view(name, writable=True)[...] = self._values[begin:end]
            return
        starts = self._values.indptr
        inside = slice(starts[begin], starts[end])
        chunk.view(name, "starts", True)[:] = starts[begin : end + 1] - starts[begin]
        chunk.view(name, "columns", True)[:] = self._values.indices[inside]
        chunk.view(name, "values", True)[:] = self._values.data[inside]


def _canonical(values: Any) -> Any:
    """Returns a matrix as CSR, its columns in order and each once; the caller's stays as it is.

    Raises:
        ValueError: it has a column that is none, or rows that are not in order.
    """
    rows = values.tocsr()
    rows.check_format(full_check=True)
    if not rows.has_canonical_format:
        rows = rows.copy()
        rows.sum_duplicates()
    return rows


def _bytes_of(field: Field) -> int:
    copies = 2 if field.is_state else 1
    return copies * np.dtype(field.dtype).itemsize * int(np.prod(field.shape, dtype=np.int64))


def _ends(
    columns: Mapping[str, _Column],
    state: Sequence[Field],
    fields: Sequence[Field],
    length: int,
    size: int,
) -> Iterator[int]:
    """Yields where each chunk ends."""
    of_state = sum(map(_bytes_of, state))
    each = of_state + sum(column.bytes_of_each() for column in columns.values())
    taken = np.cumsum(np.broadcast_to(each, length), dtype=np.int64)
    # An empty chunk, and what each array may need to end at a multiple of 64 bytes.
    room = size - chunk_bytes(0, fields) - 3 * 64 * len(fields)
    begin, before = 0, 0
    while begin < length:
        end = int(np.searchsorted(taken, before + room, side="right"))
        if end <= begin:
            needed = int(taken[begin] - before) + size - room
            raise ValueError(
                f"sample {begin} needs {needed} bytes, and a chunk has {size}: give larger chunks "
                "(chunk_bytes)."
            )
        yield end
        begin, before = end, int(taken[end - 1])

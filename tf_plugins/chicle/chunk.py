"""Chunks: samples in one block of native memory, with per-sample state (Chicle, section 4.4).

NumPy and TensorFlow use a chunk's arrays where they lie: a chunk is never serialized.
"""

from __future__ import annotations

import ctypes
import dataclasses
import functools
import weakref
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from trepak.ops.loader import call

_CODES = {"i": 0, "u": 1, "f": 2, "b": 6}  # of DLPack, by NumPy's kind
_KINDS = {code: kind for kind, code in _CODES.items()}
_DEVICE = (1, 0)  # the CPU, as DLPack has it


@dataclass(frozen=True)
class Field:
    """What each sample of a chunk has one value, array or row of.

    Attributes:
        name: of 1 to 23 bytes.
        dtype: of an element: NumPy's bool, integers or floats.
        shape: of a sample; of a sparse row, its number of columns.
        is_state: whether a task may write to it in an iteration.
        is_sparse: whether samples are sparse rows.
        nonzeros: of all samples of a chunk, if they are sparse.
    """

    name: str
    dtype: Any
    shape: tuple[int, ...] = ()
    is_state: bool = False
    is_sparse: bool = False
    nonzeros: int = 0

    def described(self) -> dict[str, Any]:
        """Returns what native code reads.

        Raises:
            TypeError: it can't hold the dtype.
        """
        dtype = np.dtype(self.dtype)
        if dtype.kind not in _CODES or dtype.itemsize > 8:
            raise TypeError(
                f"a chunk's field {self.name!r} can't be of {dtype}: make it numbers or bools."
            )
        return {
            **dataclasses.asdict(dataclasses.replace(self, dtype=None)),
            "code": _CODES[dtype.kind],
            "bits": 8 * dtype.itemsize,
        }

    @classmethod
    def of(cls, told: dict[str, Any]) -> Field:
        """Returns a field of what native code tells."""
        dtype = np.dtype(f"{_KINDS[told['code']]}{told['bits'] // 8}")
        kept = {field.name for field in dataclasses.fields(cls)} - {"dtype"}
        about = {name: value for name, value in told.items() if name in kept}
        return cls(dtype=dtype, **{**about, "shape": tuple(told["shape"])})


def chunk_bytes(samples: int, fields: Sequence[Field]) -> int:
    """Returns how many bytes a chunk of so many samples has, its table of fields included."""
    size: int = call("chicle_chunk_bytes", samples=samples, fields=_described(fields))
    return size


class Chunk:
    """A chunk in native memory, which lives as long as this or a view of it.

    Attributes:
        id: its number, of one data set.
        samples: how many.
        bytes: of the block.
        number: by which native code knows it.
    """

    def __init__(self, number: int, about: dict[str, Any] | None = None) -> None:
        """Takes over a chunk that native code has made.

        Args:
            number: by which native code knows it; nobody else drops it.
            about: its id, samples and bytes, where they are known.
        """
        told = about or call("chicle_chunk", chunk=number)
        self.number = number
        self.id, self.samples, self.bytes = told["id"], told["samples"], told["bytes"]
        self._drop = weakref.finalize(self, call, "chicle_drop_chunk", chunk=number)
        self._drop.atexit = False

    @classmethod
    def make(cls, number: int, samples: int, fields: Sequence[Field]) -> Chunk:
        """Returns a new chunk of zeros.

        Args:
            number: its id.
            samples: how many.
            fields: what each of them has.

        Raises:
            tf.errors.InvalidArgumentError: there can be no such chunk.
        """
        made = call("chicle_make_chunk", id=number, samples=samples, fields=_described(fields))
        return cls(made)

    @property
    def fields(self) -> dict[str, Field]:
        """By name, what each sample has."""
        told = call("chicle_chunk", chunk=self.number)["fields"]
        return {field["name"]: Field.of(field) for field in told}

    def view(self, field: str, part: str = "values", writable: bool = False) -> np.ndarray:
        """Returns an array of the chunk's own memory.

        Args:
            field: its name.
            part: "values", of the shape [samples, *field.shape], or [nonzeros] if it is sparse; the
                "starts" [samples + 1] and "columns" [nonzeros] of sparse rows; or of state, what
                was "committed".
            writable: whether it may be written to; what a task may do in an iteration, see
                `ChunkStore.state`.

        Raises:
            tf.errors.NotFoundError: there is no such field, or part of it.
        """
        return np.from_dlpack(_Exported(self, field, part, writable))

    def dlpack(self, field: str, part: str = "values") -> Any:
        """Returns a capsule for `tf.experimental.dlpack.from_dlpack`; see `view`."""
        return _capsule(self._exported(field, part, False, versioned=False), b"dltensor")

    def rows(self, field: str) -> Any:
        """Returns a sparse field as SciPy's CSR matrix, of the chunk's own memory."""
        from scipy.sparse import csr_array

        parts = (self.view(field, part) for part in ("values", "columns", "starts"))
        return csr_array(tuple(parts), shape=(self.samples, *self.fields[field].shape))

    def copy(self) -> Chunk:
        """Returns a chunk of the same id with all that this one has, its committed state too."""
        fields = self.fields
        made = type(self).make(self.id, self.samples, list(fields.values()))
        for name, field in fields.items():
            parts = ["values", *(["starts", "columns"] if field.is_sparse else [])]
            for part in [*parts, *(["committed"] if field.is_state else [])]:
                made.view(name, part, writable=True)[...] = self.view(name, part)
        return made

    def check(self) -> None:
        """Checks the rows of sparse fields, once they are filled.

        Raises:
            tf.errors.InvalidArgumentError: rows are not in order, or a column is none.
        """
        call("chicle_check_chunk", chunk=self.number)

    def _exported(self, field: str, part: str, writable: bool, versioned: bool) -> int:
        address: int = call(
            "chicle_view_chunk",
            chunk=self.number,
            field=field,
            part=part,
            is_writable=writable,
            versioned=versioned,
        )
        return address


class _Exported:
    """What NumPy asks for a DLPack capsule."""

    def __init__(self, chunk: Chunk, field: str, part: str, writable: bool) -> None:
        self._export = functools.partial(chunk._exported, field, part, writable, versioned=True)

    def __dlpack__(self, **_: Any) -> Any:
        return _capsule(self._export(), b"dltensor_versioned")

    def __dlpack_device__(self) -> tuple[int, int]:
        return _DEVICE


def _capsule(address: int, name: bytes) -> Any:
    """Returns a capsule, whose taker lets go of what is at the address."""
    new = ctypes.pythonapi.PyCapsule_New
    new.restype, new.argtypes = (
        ctypes.py_object,
        [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p],
    )
    return new(address, name, None)


def _described(fields: Sequence[Field]) -> list[dict[str, Any]]:
    return [field.described() for field in fields]

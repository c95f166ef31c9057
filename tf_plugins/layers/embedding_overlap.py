"""Which rows and columns two parts of one embedding table have in common."""

from __future__ import annotations

import dataclasses
import math
from typing import Any, NamedTuple

from trepak.tf_plugins.layers.embedding_plan import Shard, Table


class Overlap(NamedTuple):
    """What two parts share: the same numbers, as slices of the one and of the other."""

    rows: slice
    columns: slice
    other_rows: slice
    other_columns: slice


def whole(number: int, table: Table) -> Shard:
    """Returns a table as the shard that has all of it."""
    return Shard(number, 0, 0, 1, table.rows, 0, table.columns)


def block(shard: Shard, first: int, count: int) -> Shard:
    """Returns rows of a shard, counted within it, as a shard of their own."""
    begin = shard.first_row + first * shard.row_stride
    return dataclasses.replace(shard, first_row=begin, rows=count)


def overlap(one: Shard, other: Shard) -> Overlap | None:
    """Returns what two parts of one table share; None if that is nothing."""
    rows = _shared_rows(one, other)
    first = max(one.first_column, other.first_column)
    end = min(one.first_column + one.columns, other.first_column + other.columns)
    if rows is None or first >= end:
        return None
    return Overlap(
        rows[0],
        slice(first - one.first_column, end - one.first_column),
        rows[1],
        slice(first - other.first_column, end - other.first_column),
    )


def _shared_rows(one: Shard, other: Shard) -> tuple[slice, slice] | None:
    """Returns the rows that both have, counted within each: two sequences of even steps meet."""
    common = math.gcd(one.row_stride, other.row_stride)
    apart = other.first_row - one.first_row
    if apart % common:
        return None
    step, other_step = other.row_stride // common, one.row_stride // common
    # The first of one's rows, from its row 0 on, that lies where other's may.
    first = apart // common * pow(one.row_stride // common, -1, step) % step
    missing = other.first_row - (one.first_row + first * one.row_stride)
    if missing > 0:  # it lies before other's first row
        every = step * one.row_stride
        first += -(-missing // every) * step
    other_first = (one.first_row + first * one.row_stride - other.first_row) // other.row_stride
    count = min(
        -(-(one.rows - first) // step) if first < one.rows else 0,
        -(-(other.rows - other_first) // other_step) if other_first < other.rows else 0,
    )
    if count <= 0:
        return None
    return _slice(first, step, count), _slice(other_first, other_step, count)


def _slice(first: int, step: int, count: int) -> slice:
    return slice(first, first + (count - 1) * step + 1, step)


def copy(to: Any, to_shard: Shard, values: Any, of: Shard) -> None:
    """Copies what two parts share.

    Args:
        to: an array whose first dimension is rows, and whose last is columns.
        to_shard: what it is of.
        values: the same of another part.
        of: what that is of.
    """
    shared = overlap(to_shard, of)
    if shared is not None:
        to[shared.rows, ..., shared.columns] = values[shared.other_rows, ..., shared.other_columns]

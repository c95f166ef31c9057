"""What two parts of one table share, against sets of their rows and columns."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from trepak.tf_plugins.layers import embedding_overlap
from trepak.tf_plugins.layers.embedding_plan import Shard, Table, make_plan

TABLE = Table("t", 37, 9, 0, 0)
VALUES = np.arange(37 * 9).reshape(37, 9)

parts = st.builds(
    lambda first, stride, rows, column, columns: Shard(
        0,
        0,
        first,
        stride,
        min(rows, len(range(first, 37, stride))),
        column,
        min(columns, 9 - column),
    ),
    st.integers(0, 36),
    st.integers(1, 12),
    st.integers(0, 37),
    st.integers(0, 8),
    st.integers(1, 9),
)


def cut(shard: Shard, values: np.ndarray = VALUES) -> np.ndarray:
    """Returns a part's numbers, as its rank has them."""
    rows = values[shard.first_row :: shard.row_stride][: shard.rows]
    return rows[:, shard.first_column : shard.first_column + shard.columns]


@given(parts, parts)
def test_what_both_have_is_copied_and_nothing_else(one: Shard, other: Shard) -> None:
    mark = np.zeros_like(VALUES)
    cut(other, mark)[...] = VALUES[cut_index(other)]
    to = np.zeros_like(cut(one))
    embedding_overlap.copy(to, one, cut(other), other)
    np.testing.assert_array_equal(to, cut(one, mark))


def cut_index(shard: Shard) -> tuple[np.ndarray, ...]:
    rows = np.arange(37)[shard.first_row :: shard.row_stride][: shard.rows]
    return np.ix_(rows, np.arange(shard.first_column, shard.first_column + shard.columns))


@given(parts, st.integers(0, 36), st.integers(0, 36))
def test_a_block_is_rows_of_its_shard(shard: Shard, first: int, count: int) -> None:
    first = min(first, shard.rows)
    count = min(count, shard.rows - first)
    block = embedding_overlap.block(shard, first, count)
    np.testing.assert_array_equal(cut(block), cut(shard)[first : first + count])


def test_plans_of_any_ranks_and_shardings_make_each_other() -> None:
    for sharding in ("row", "column", "table"):
        for ranks in (1, 2, 5):
            whole = np.full((37, 9), -1)
            for shard in make_plan([TABLE], ranks, sharding).shards:
                embedding_overlap.copy(whole, embedding_overlap.whole(0, TABLE), cut(shard), shard)
            np.testing.assert_array_equal(whole, VALUES)

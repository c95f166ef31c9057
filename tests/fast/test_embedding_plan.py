"""Which rank has which part of a table."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from trepak.tf_plugins.layers.embedding_plan import Plan, Table, make_plan

TABLES = [
    Table("large", 10_000, 16, 1, 512),
    Table("middle", 700, 8, 2, 512),
    *(Table(f"small{number}", 5 + number, 8, 0, 512) for number in range(12)),
]


def cells(plan: Plan) -> list[np.ndarray]:
    """Returns, by table, how often each of its numbers is in a shard."""
    found = [np.zeros((table.rows, table.columns), int) for table in plan.tables]
    for shard in plan.shards:
        rows = slice(shard.first_row, None, shard.row_stride)
        columns = slice(shard.first_column, shard.first_column + shard.columns)
        part = found[shard.table][rows, columns]
        assert part.shape == (shard.rows, shard.columns)
        part += 1
    return found


@pytest.mark.parametrize("sharding", ["auto", "row", "column", "table"])
@pytest.mark.parametrize("ranks", [1, 2, 3, 8])
def test_each_number_is_on_one_rank(sharding: str, ranks: int) -> None:
    plan = make_plan(TABLES, ranks, sharding)
    assert all((count == 1).all() for count in cells(plan))
    assert {shard.rank for shard in plan.shards} <= set(range(ranks))


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])  # on a busy machine
@given(
    st.lists(st.tuples(st.integers(1, 400), st.integers(1, 9)), min_size=1, max_size=6),
    st.integers(1, 9),
)
def test_auto_takes_any_tables(sizes: list[tuple[int, int]], ranks: int) -> None:
    tables = [Table(str(number), *size, 1, 64) for number, size in enumerate(sizes)]
    assert all((count == 1).all() for count in cells(make_plan(tables, ranks)))


def test_auto_balances_bytes_and_look_ups() -> None:
    """No rank has more than a row of each cut table, and one small table, beyond its share."""
    plan = make_plan(TABLES, 4)
    assert plan.shardings[:2] == ("row", "row") and set(plan.shardings[2:]) == {"table"}
    sizes = plan.bytes_by_rank()
    largest = max(4 * t.rows * t.columns * (1 + t.slots) for t in TABLES[2:])
    cut = sum(4 * t.columns * (1 + t.slots) for t in TABLES[:2])
    assert max(sizes) - min(sizes) <= largest + cut, sizes
    shares = plan.look_ups_by_rank()
    assert sum(shares) == pytest.approx(1) and max(shares) < 1.5 / 4, shares


def test_it_says_what_it_does() -> None:
    said = str(make_plan(TABLES[:3], 2, {"small0": "table"}))
    assert "Embedding tables over 2 ranks" in said
    assert "large         10,000 x 16   row    on 2 ranks" in said, said
    assert "rank 1:" in said and "% of the look-ups" in said


def test_wrong_shardings_are_named() -> None:
    with pytest.raises(ValueError, match="'large' must be one of auto, row, column, table"):
        make_plan(TABLES, 2, "rows")
    with pytest.raises(ValueError, match="sharding names the table 'larg'; there are large"):
        make_plan(TABLES, 2, {"larg": "row"})
    with pytest.raises(ValueError, match="'large' has 16 columns, too few for 17 ranks"):
        make_plan(TABLES, 17, "column")

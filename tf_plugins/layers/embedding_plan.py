"""Which rank has which part of which embedding table (thesis, section 6.1.3, Figure 6.3)."""

from __future__ import annotations

import heapq
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

SHARDINGS = ("auto", "row", "column", "table")

# A table with fewer rows than this for each rank is not cut by "auto": its look-ups cost less than
# the messages' parts that name one more shard.
_ROWS_WORTH_CUTTING = 64
_FLOAT_BYTES = 4


@dataclass(frozen=True)
class Table:
    """What a plan needs to know of a table.

    Attributes:
        name: the table's.
        rows: its vocabulary's size.
        columns: of an embedding.
        slots: numbers that its optimizer keeps for each weight.
        look_ups: ids of all its features in a rank's batch, or in a sample where the batch's size
            is not known.
        admits: whether it admits rows by how often they are seen (`min_count`).
    """

    name: str
    rows: int
    columns: int
    slots: int
    look_ups: int
    admits: bool = False

    @property
    def kept(self) -> int:
        """Numbers that files have behind each weight: slots, and how often its row was seen."""
        return self.slots + self.admits


@dataclass(frozen=True)
class Shard:
    """A part of a table that one rank has; the names are those of `EmbeddingShard` in C++.

    Its rows are first_row, first_row + row_stride, …; its columns stand side by side.
    """

    table: int
    rank: int
    first_row: int
    row_stride: int
    rows: int
    first_column: int
    columns: int


@dataclass(frozen=True)
class Plan:
    """All tables, how each is cut, and the shards.

    Attributes:
        ranks: how many there are.
        tables: the tables.
        shardings: by table, "row", "column" or "table".
        shards: of all tables; those of a table stand together.
    """

    ranks: int
    tables: tuple[Table, ...]
    shardings: tuple[str, ...]
    shards: tuple[Shard, ...]

    def bytes_by_rank(self) -> list[int]:
        """Returns how many bytes of weights and of what optimizers keep each rank has."""
        found = [0] * self.ranks
        for shard in self.shards:
            numbers = shard.rows * shard.columns * (1 + self.tables[shard.table].slots)
            found[shard.rank] += numbers * _FLOAT_BYTES
        return found

    def look_ups_by_rank(self) -> list[float]:
        """Returns each rank's share of the numbers that are looked up, if no id comes twice.

        An id that comes twice in a batch travels once, so no table has more look-ups than rows.
        """
        found = [0.0] * self.ranks
        for shard in self.shards:
            table = self.tables[shard.table]
            share = shard.rows / table.rows * shard.columns
            found[shard.rank] += _distinct(table) * share
        return [one / (sum(found) or 1) for one in found]

    def __str__(self) -> str:
        """Says it in a few lines: by table, how it is cut; by rank, what it has."""
        wide = max(len(table.name) for table in self.tables)
        lines = [f"Embedding tables over {self.ranks} ranks:"]
        for number, (table, sharding) in enumerate(zip(self.tables, self.shardings, strict=True)):
            of = sorted({shard.rank for shard in self.shards if shard.table == number})
            where = f"rank {of[0]}" if len(of) == 1 else f"{len(of)} ranks"
            lines.append(
                f"  {table.name:<{wide}}  {table.rows:>12,} x {table.columns:<4} {sharding:<6} "
                f"on {where}"
            )
        sizes, look_ups = self.bytes_by_rank(), self.look_ups_by_rank()
        for rank, (size, share) in enumerate(zip(sizes, look_ups, strict=True)):
            lines.append(f"  rank {rank}: {size / 2**20:,.1f} MiB, {share:.0%} of the look-ups")
        return "\n".join(lines)


def make_plan(
    tables: Sequence[Table], ranks: int, sharding: str | Mapping[str, str] = "auto"
) -> Plan:
    """Returns which rank has what.

    "row" gives rank k the rows k, k + ranks, …; "column" cuts the embeddings themselves; "table"
    gives a whole table to one rank, which is the one that has the least so far. "auto" cuts large
    tables by rows, which balances bytes and look-ups alike, and gives small ones away as "table".

    Args:
        tables: the tables.
        ranks: how many there are.
        sharding: for all tables, or by table name; those that are not named are "auto".

    Raises:
        ValueError: there is no such sharding or table, or a table has too few columns.
    """
    by_name = _by_name(tables, sharding)
    shardings = [_chosen(table, ranks, by_name[table.name]) for table in tables]
    owners = _owners_of_whole(tables, shardings, ranks)
    shards: list[Shard] = []
    for number, (table, how) in enumerate(zip(tables, shardings, strict=True)):
        if how == "table":
            shards.append(Shard(number, owners[number], 0, 1, table.rows, 0, table.columns))
        elif how == "row":
            shards += _rows(number, table, ranks)
        else:
            shards += _columns(number, table, ranks)
    return Plan(ranks, tuple(tables), tuple(shardings), tuple(shards))


def _by_name(tables: Sequence[Table], sharding: str | Mapping[str, str]) -> dict[str, str]:
    given = {} if isinstance(sharding, str) else dict(sharding)
    known = [table.name for table in tables]
    unknown = sorted(set(given) - set(known))
    if unknown:
        raise ValueError(
            f"sharding names the table {unknown[0]!r}; there are {', '.join(sorted(known))}."
        )
    default = sharding if isinstance(sharding, str) else "auto"
    found = {name: given.get(name, default) for name in known}
    for name, how in found.items():
        if how not in SHARDINGS:
            raise ValueError(
                f"sharding of the table {name!r} must be one of {', '.join(SHARDINGS)}, "
                f"got {how!r}."
            )
    return found


def _chosen(table: Table, ranks: int, how: str) -> str:
    if how == "auto":
        how = "row" if table.rows >= ranks * _ROWS_WORTH_CUTTING else "table"
    if how == "column" and table.columns < ranks:
        raise ValueError(
            f"the table {table.name!r} has {table.columns} columns, too few for {ranks} ranks: "
            "shard it by rows."
        )
    return "table" if ranks == 1 else how


def _owners_of_whole(
    tables: Sequence[Table], shardings: Sequence[str], ranks: int
) -> dict[int, int]:
    """Returns the ranks of uncut tables: the costliest first, each to whom has least so far."""
    whole = [number for number, how in enumerate(shardings) if how == "table"]
    total_bytes = sum(_bytes(tables[number]) for number in whole) or 1
    total_numbers = sum(_distinct(tables[number]) * tables[number].columns for number in whole) or 1

    def cost(number: int) -> float:
        table = tables[number]
        return _bytes(table) / total_bytes + _distinct(table) * table.columns / total_numbers

    loads = [(0.0, rank) for rank in range(ranks)]
    owners = {}
    for number in sorted(whole, key=lambda number: (-cost(number), number)):
        load, rank = heapq.heappop(loads)
        owners[number] = rank
        heapq.heappush(loads, (load + cost(number), rank))
    return owners


def _distinct(table: Table) -> int:
    """Returns how many rows a rank's batch looks up at most: duplicates travel once."""
    return min(table.rows, table.look_ups)


def _bytes(table: Table) -> int:
    return table.rows * table.columns * (1 + table.slots) * _FLOAT_BYTES


def _rows(number: int, table: Table, ranks: int) -> list[Shard]:
    return [
        Shard(number, rank, rank, ranks, len(range(rank, table.rows, ranks)), 0, table.columns)
        for rank in range(ranks)
    ]


def _columns(number: int, table: Table, ranks: int) -> list[Shard]:
    bounds = [table.columns * rank // ranks for rank in range(ranks + 1)]
    return [
        Shard(number, rank, 0, 1, table.rows, bounds[rank], bounds[rank + 1] - bounds[rank])
        for rank in range(ranks)
    ]

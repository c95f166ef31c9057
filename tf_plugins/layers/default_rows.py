"""What files have of rows that stand for those that are not admitted (`min_count`)."""

from __future__ import annotations

import base64
import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from trepak.tf_plugins.layers.embedding_plan import Shard
from trepak.tf_plugins.layers.embedding_rows import EmbeddingRows

MIN_COUNT = "min_count"
_ROWS = "default_rows"


def described(rows: EmbeddingRows, table: int, min_count: int, only_mine: bool) -> dict[str, Any]:
    """Returns a table's min_count, and its default rows, one for each shard; JSON can hold it.

    Nothing, if the table admits all rows. No collective call.

    Args:
        rows: of all ranks.
        table: its number.
        min_count: the table's.
        only_mine: leave out what other ranks have.
    """
    if not min_count:
        return {}
    return {
        MIN_COUNT: min_count,
        _ROWS: [
            {
                "shard": dataclasses.asdict(shard),
                "planes": _text(rows.read(number, shard.rows, 1, with_slots=True)),
            }
            for number, shard in rows.shards(table)
            if not only_mine or shard.rank == rows.rank
        ],
    }


def joined(parts: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Returns what ranks have described of one table, each what it has itself, as one."""
    first = dict(parts[0])
    if MIN_COUNT in first:
        first[_ROWS] = [row for part in parts for row in part[_ROWS]]
    return first


def load(
    rows: EmbeddingRows,
    table: int,
    saved: Mapping[str, Any],
    optimizers: bool = True,
    only_mine: bool = False,
) -> None:
    """Sets a table's default rows.

    A shard that was saved gets its own again. Any other gets the mean of all that were saved.

    Args:
        rows: of all ranks.
        table: its number.
        saved: what `described` has returned.
        optimizers: whether to load what optimizers keep.
        only_mine: leave out what other ranks have.
    """
    if MIN_COUNT not in saved:
        return
    mean = _mean(saved, rows.plan.tables[table].columns)
    for number, shard in rows.shards(table):
        if not only_mine or shard.rank == rows.rank:
            own = of_shard(saved, shard)
            columns = slice(shard.first_column, shard.first_column + shard.columns)
            planes = mean[:, columns] if own is None else own
            rows.write(number, shard.rows, planes[None, :] if optimizers else planes[None, :1])


def of_shard(saved: Mapping[str, Any], shard: Shard) -> Any:
    """Returns the default row that was saved for such a shard, [1 + kept, columns]; None: none."""
    for one in saved[_ROWS]:
        if dataclasses.replace(Shard(**one["shard"]), table=shard.table, rank=shard.rank) == shard:
            return _planes(one)
    return None


def _mean(saved: Mapping[str, Any], columns: int) -> Any:
    total, count = np.zeros((len(_planes(saved[_ROWS][0])), columns)), np.zeros(columns)
    for one in saved[_ROWS]:
        shard = Shard(**one["shard"])
        its = slice(shard.first_column, shard.first_column + shard.columns)
        total[:, its] += _planes(one)
        count[its] += 1
    return (total / count).astype("float32")


def _text(values: Any) -> str:
    return base64.b64encode(np.asarray(values, "<f4").tobytes()).decode()


def _planes(one: Mapping[str, Any]) -> Any:
    columns = one["shard"]["columns"]
    return np.frombuffer(base64.b64decode(one["planes"]), "<f4").reshape(-1, columns)

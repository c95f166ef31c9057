"""Ranks of a job with embeddings in one process: their stores, and what they send each other."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import tensorflow as tf

from trepak.ops import loader

RANKS = 3


@dataclass
class Table:
    name: str
    vocabulary: int
    dim: int
    optimizer: dict[str, Any] = field(default_factory=lambda: {"name": "sgd"})


@dataclass
class Feature:
    """A feature as the ops have it."""

    table: int
    ids: tf.Tensor
    row_splits: tf.Tensor
    weights: tf.Tensor
    combiner: str = "mean"
    reduces: bool = True


def row_wise(tables: list[Table]) -> list[dict[str, int]]:
    return [
        shard(number, rank, (rank, RANKS, table.vocabulary), (0, table.dim))
        for number, table in enumerate(tables)
        for rank in range(RANKS)
    ]


def table_wise(tables: list[Table]) -> list[dict[str, int]]:
    return [
        shard(number, number % RANKS, (0, 1, table.vocabulary), (0, table.dim))
        for number, table in enumerate(tables)
    ]


def column_wise(tables: list[Table]) -> list[dict[str, int]]:
    return [
        shard(number, rank, (0, 1, table.vocabulary), (begin, end))
        for number, table in enumerate(tables)
        for rank, (begin, end) in enumerate(cuts(table.dim))
    ]


def grid(tables: list[Table]) -> list[dict[str, int]]:
    """Two cuts of rows by three of columns, dealt in turn."""
    return [
        shard(number, (3 * row + piece + number) % RANKS, (row, 2, table.vocabulary), columns)
        for number, table in enumerate(tables)
        for row in range(2)
        for piece, columns in enumerate(cuts(table.dim))
    ]


PLANS = [row_wise, table_wise, column_wise, grid]


def cuts(dim: int) -> list[tuple[int, int]]:
    places = [dim * rank // RANKS for rank in range(RANKS + 1)]
    return list(zip(places, places[1:], strict=False))


def shard(
    table: int, rank: int, rows: tuple[int, int, int], columns: tuple[int, int]
) -> dict[str, int]:
    first, stride, vocabulary = rows
    return {
        "table": table,
        "rank": rank,
        "first_row": first,
        "row_stride": stride,
        "rows": len(range(first, vocabulary, stride)),
        "first_column": columns[0],
        "columns": columns[1] - columns[0],
    }


class Job:
    """The stores of all ranks, and the ways between them."""

    def __init__(self, tables: list[Table], plan: Any, **options: Any) -> None:
        self.ops = loader.load()
        self.tables = tables
        self.shards = plan(tables)
        described = [vars(table) for table in tables]
        self.stores = [
            loader.call(
                "open_embeddings",
                rank=rank,
                ranks=RANKS,
                tables=described,
                shards=self.shards,
                **options,
            )["store"]
            for rank in range(RANKS)
        ]

    def close(self) -> None:
        for store in self.stores:
            loader.call("close_embeddings", store=store, session=-1)

    def all_to_all(self, sent: list[tuple[Any, Any]]) -> list[tuple[Any, Any]]:
        pieces = [np.split(np.asarray(buffer), np.cumsum(splits)[:-1]) for buffer, splits in sent]
        return [
            (
                np.concatenate([pieces[source][rank] for source in range(RANKS)]),
                np.array([len(pieces[source][rank]) for source in range(RANKS)], np.int64),
            )
            for rank in range(RANKS)
        ]

    def forward(self, features: list[list[Feature]]) -> list[list[tf.Tensor]]:
        """Returns each rank's outputs; `features`: by rank."""
        self.features = features
        self.routed = [
            self.ops.trepak_embedding_route(
                ids=[one.ids for one in mine],
                row_splits=[one.row_splits for one in mine],
                features=[f"feature {i}" for i in range(len(mine))],
                tables=[one.table for one in mine],
                store=store,
            )
            for store, mine in zip(self.stores, features, strict=True)
        ]
        self.requests = self.all_to_all([(one.requests, one.request_splits) for one in self.routed])
        answers = self.all_to_all(
            [
                tuple(self.ops.trepak_embedding_lookup(*request, store=store))
                for store, request in zip(self.stores, self.requests, strict=True)
            ]
        )
        for routed, (_, splits) in zip(self.routed, answers, strict=True):
            np.testing.assert_array_equal(routed.value_splits, splits)
        return [
            self.ops.trepak_embedding_combine(
                routing=routed.routing,
                values=values,
                weights=[one.weights for one in mine],
                dims=[self.tables[one.table].dim for one in mine],
                **self.reductions(mine),
            )
            for routed, (values, _), mine in zip(self.routed, answers, features, strict=True)
        ]

    def backward(self, gradients: list[list[Any]], rates: list[float], step: int) -> None:
        """Updates what went forward last; `gradients`: by rank."""
        spread = [
            self.ops.trepak_embedding_spread(
                routing=routed.routing,
                gradients=mine_gradients,
                weights=[one.weights for one in mine],
                **self.reductions(mine),
            )
            for routed, mine_gradients, mine in zip(
                self.routed, gradients, self.features, strict=True
            )
        ]
        received = self.all_to_all(
            [(one, routed.value_splits) for one, routed in zip(spread, self.routed, strict=True)]
        )
        for store, request, (values, _) in zip(self.stores, self.requests, received, strict=True):
            self.ops.trepak_embedding_update(
                *request, values, rates, step, scale=1 / RANKS, store=store
            )

    @staticmethod
    def reductions(mine: list[Feature]) -> dict[str, Any]:
        return {
            "combiners": [one.combiner for one in mine],
            "reduces": [one.reduces for one in mine],
        }

    def fill(self, table: int, weights: np.ndarray) -> None:
        for number, cut in enumerate(self.shards):
            if cut["table"] == table:
                self.ops.trepak_embedding_write(
                    number, 0, weights[cells(cut)], store=self.stores[cut["rank"]]
                )

    def weights(self, table: int) -> np.ndarray:
        made = np.full((self.tables[table].vocabulary, self.tables[table].dim), np.nan, "f4")
        for number, cut in enumerate(self.shards):
            if cut["table"] == table:
                made[cells(cut)] = self.ops.trepak_embedding_read(
                    number, 0, cut["rows"], store=self.stores[cut["rank"]]
                )
        return made


def cells(cut: dict[str, int]) -> tuple[slice, slice]:
    begin = cut["first_column"]
    return np.s_[cut["first_row"] :: cut["row_stride"], begin : begin + cut["columns"]]

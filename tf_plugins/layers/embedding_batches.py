"""What a layer looks up, and what of a batch is under way between its exchanges."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple


@dataclass(frozen=True)
class Feature:
    """What a layer looks up.

    Attributes:
        path: where it stands among the layer's inputs.
        table: the number of its table.
        columns: of the table.
        combiner: "mean", "sum" or "sqrtn".
    """

    path: str
    table: int
    columns: int
    combiner: str


class Asked(NamedTuple):
    """A batch whose ids are on their way: where its rows belong, their splits, a ticket."""

    routing: Any
    value_splits: Any
    ids: Any


class Wanted(NamedTuple):
    """A batch whose ids have not travelled: a reader has told this rank what all ranks want."""

    routing: Any
    value_splits: Any
    wanted: Any
    splits: Any


class Read(NamedTuple):
    """A batch from readers: what `train_step` takes; by layer and call, what all ranks want."""

    batch: Any
    wanted: Any


class Answered(NamedTuple):
    """A batch whose rows are on their way, and what the other ranks wanted of this one."""

    routing: Any
    value_splits: Any
    wanted: Any
    splits: Any
    rows: Any


class Gradients(NamedTuple):
    """A batch's gradients, how many of them are for whom, and what others wanted of this rank."""

    wanted: Any
    splits: Any
    values: Any
    value_splits: Any


class Returned(NamedTuple):
    """A batch whose gradients are on their way to the rows' owners."""

    wanted: Any
    splits: Any
    gradients: Any

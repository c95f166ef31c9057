"""What a look-up passes from one of its parts to the next: a batch on its way."""

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

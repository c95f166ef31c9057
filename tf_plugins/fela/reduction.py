"""Sums what ranks have made of a sub-model, beside the tokens of others (Section III-A).

"While the worker is synchronizing and updating parameters for one sub-model, its Trainer is not
blocked": a thread of its own makes the collective calls, in the order in which the token server
says that sub-models are trained, which is the same on all ranks.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

from trepak.horovod_ext import collectives


class Reduction:
    """The sums under way of one model's sub-models."""

    def __init__(self, label: str) -> None:
        """Makes it; `label`: of the collectives, the same on all ranks."""
        self._label = label
        self._thread = ThreadPoolExecutor(1, "trepak Fela reduction")
        self._under_way: dict[int, Future[list[Any]]] = {}

    def start(self, sub_model: int, tensors: Sequence[Any]) -> None:
        """Begins to sum tensors over ranks; a collective call."""
        self._under_way[sub_model] = self._thread.submit(self._sum, sub_model, list(tensors))

    def finish(self) -> dict[int, list[Any]]:
        """Waits for all sums that have begun; returns them by sub-model.

        Raises:
            HorovodInternalError: a rank has died or left.
        """
        under_way, self._under_way = self._under_way, {}
        return {sub_model: future.result() for sub_model, future in under_way.items()}

    def close(self) -> None:
        """Ends the thread, once what is under way has ended."""
        self._thread.shutdown(wait=False)

    def _sum(self, sub_model: int, tensors: list[Any]) -> list[Any]:
        if not tensors:
            return []
        name = f"{self._label}: sub-model {sub_model + 1}"
        return list(collectives.grouped_allreduce(tensors, op=collectives.Sum, name=name))

"""Sums what ranks have made of a sub-model, beside the tokens of others (Section III-A).

"While the worker is synchronizing and updating parameters for one sub-model, its Trainer is not
blocked": a thread of its own makes the collective calls, in the order in which the token server
says that sub-models are trained, which is the same on all ranks.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from typing import Any

from trepak.horovod_ext import basics, collectives, process_sets

_CHECK_SECONDS = 0.5  # between two looks at the other ranks, while sums are waited for
_under_way: set[Future[list[Any]]] = set()  # of this process, of failed iterations too


def is_any_under_way() -> bool:
    """Tells whether this rank waits in a sum; of eager calls Horovod keeps none apart by name."""
    return bool(_under_way)


class Reduction:
    """The sums under way of one model's sub-models, by iteration.

    Attributes:
        is_partial: whether some rank does not train some sub-model.
    """

    def __init__(self, subsets: Sequence[Sequence[int]]) -> None:
        """Makes it; a collective call.

        Args:
            subsets: by sub-model, from 0 on, the ranks that train it.

        Raises:
            ValueError: Horovod was started without these process sets; says what to call.
        """
        what = "a conditional subset of Fela"
        self._sets = [process_sets.process_set_of(one, basics.size(), what) for one in subsets]
        self._members = [basics.rank() in one for one in subsets]
        self.is_partial = any(len(one) < basics.size() for one in subsets)
        self._thread = ThreadPoolExecutor(1, "trepak Fela reduction")
        self._under_way: dict[int, dict[int, Future[list[Any]]]] = {}

    def start(self, iteration: int, sub_model: int, tensors: Sequence[Any]) -> None:
        """Begins to sum tensors over the ranks that train a sub-model; collective for them."""
        if self._members[sub_model]:
            under_way = self._thread.submit(self._sum, sub_model, list(tensors))
            self._under_way.setdefault(iteration, {})[sub_model] = under_way
            _under_way.add(under_way)
            under_way.add_done_callback(_under_way.discard)

    def finish(self, iteration: int, check: Callable[[], None]) -> dict[int, list[Any]]:
        """Waits for all sums of an iteration, which have begun; returns them by sub-model.

        Args:
            iteration: all of whose tokens are done.
            check: raises if another rank has failed, which may never come to its part of a sum.

        Raises:
            HorovodInternalError: a rank has died or left.
        """
        under_way = self._under_way.pop(iteration, {})
        while wait(under_way.values(), _CHECK_SECONDS).not_done:
            check()
        return {sub_model: future.result() for sub_model, future in sorted(under_way.items())}

    def close(self) -> None:
        """Ends the thread, once what is under way has ended; what has not begun is left out."""
        self._thread.shutdown(wait=False, cancel_futures=True)

    def _sum(self, sub_model: int, tensors: list[Any]) -> list[Any]:
        if not tensors:
            return []
        ranks = self._sets[sub_model]
        return list(collectives.grouped_allreduce(tensors, op=collectives.Sum, process_set=ranks))

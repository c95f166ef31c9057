"""Steps that ranks take at their own pace: not one reduction for each."""

from __future__ import annotations

import abc
import itertools
import warnings
from collections.abc import Sequence
from typing import Any, ClassVar

from trepak.horovod_ext import basics, collectives
from trepak.horovod_ext.variables import key, text_of
from trepak.ops.loader import load
from trepak.tf_plugins.model.exchanged_values import ExchangedValues
from trepak.tf_plugins.model.tracing import reject_xla
from trepak.tf_plugins.optimizer.distribution import Distribution
from trepak.tf_plugins.sync.step import Step


class AsynchronousStep(Step):
    """What one distributed optimizer has of a system whose ranks go at their own pace.

    Attributes:
        transports: classes of transports that may carry what it exchanges.
    """

    is_synchronous = False
    transports: ClassVar[tuple[type, ...]] = ()

    def __init__(self, distribution: Distribution) -> None:
        """Makes it; see `Step`."""
        super().__init__(distribution)
        _check_options(distribution, self.transports)
        self._warned = False

    def begin(self, optimizer: Any) -> None:
        """Warns that nothing waits for the next step; see `Step.begin`."""
        if not self._warned:
            self._warned = True
            warnings.warn(
                f"{optimizer.name}: gradients are not applied one by one, so their transfer does "
                f"not overlap the next step: {self._distribution.sync!r} does not wait for them.",
                stacklevel=2,
            )

    def apply(self, optimizer: Any, grads: Sequence[Any], variables: Sequence[Any]) -> None:
        """Ends a step of this rank's; see `Step.apply`.

        Raises:
            ValueError: variables that are local to a rank, gradients of a scaled loss, or the job
                is elastic.
        """
        reducer = self._distribution.reducer
        if not reducer.takes_part():
            optimizer._apply_plainly(list(grads), list(variables))
            load().trepak_count_dealt()  # a job of one rank has no rounds that count it
            return
        reject_xla()
        basics.reject_elastic(f"{self._distribution.sync!r}, where ranks go at their own pace,")
        if hasattr(optimizer, "inner_optimizer"):
            raise ValueError(
                "where ranks go at their own pace, what they exchange comes from several steps, so "
                "a loss scale that changes from step to step can't be taken out again: use "
                "bfloat16 instead of float16 (mixed_bfloat16), or no LossScaleOptimizer."
            )
        local = [v for v in variables if reducer.is_local(v)]
        if local:
            raise ValueError(
                f"variable {local[0].path} is local to each rank, but "
                f"{type(self._distribution.sync).__name__} is for all variables of an optimizer: "
                "give it one of its own."
            )
        reducer.agree(grads, variables)
        self._step(optimizer, grads, variables)

    @abc.abstractmethod
    def _step(self, optimizer: Any, grads: Sequence[Any], variables: Sequence[Any]) -> None:
        """Ends a step of this rank's, one of several."""

    @staticmethod
    def _check_same(first: Sequence[Any], now: Sequence[Any]) -> None:
        """Raises ValueError unless a step is for the variables that the first one was for."""
        if [*map(key, now)] == [*map(key, first)]:
            return
        pairs = itertools.zip_longest(first, now)
        old, new = next((a, b) for a, b in pairs if a is None or b is None or key(a) != key(b))
        raise ValueError(
            f"rank {basics.rank()}: what ranks exchange is of the first step's {len(first)} "
            f"variables; now there are gradients for {len(now)}, with {text_of(new)} where "
            f"{text_of(old)} was. Give the optimizer the same variables in each step, and others "
            "one of their own."
        )

    def _reject_constraints(self, variables: Sequence[Any]) -> None:
        """Raises ValueError for variables whose values several ranks make, and that must be so."""
        constrained = [v for v in variables if getattr(v, "constraint", None) is not None]
        if constrained:
            raise ValueError(
                f"variable {constrained[0].path} has the constraint "
                f"{type(constrained[0].constraint).__name__}, which what several ranks make of it "
                f"together may not keep: with {type(self._distribution.sync).__name__} leave the "
                "constraint out, or train with BSP() or with RNA() without groups."
            )


class LocalStep(AsynchronousStep):
    """Steps of ranks that apply their own gradients, and show what native code makes of them."""

    shares_slots = False

    def __init__(self, distribution: Distribution) -> None:
        """Makes it; see `Step`."""
        super().__init__(distribution)
        self._variables: list[Any] = []  # of the first step
        self._values: Any = None  # of these

    def _step(self, optimizer: Any, grads: Sequence[Any], variables: Sequence[Any]) -> None:
        """Applies this rank's gradients, and shows what others have made of the variables.

        Raises:
            ValueError: other variables than in the first step, or constraints on them.
        """
        if self.session is None:
            self._reject_constraints(variables)
            self._variables, self._values = list(variables), ExchangedValues(variables)
            self._start(variables)
        self._check_same(self._variables, variables)
        self._exchange(optimizer, grads, variables)

    def _bring(self, action: str) -> None:
        """Hands the variables' values to native code, by an action of the session."""
        self._act(action, self._values.read())

    def _taken(self, action: str) -> list[Any]:
        """Returns values of the variables that native code has, by an action of the session."""
        return self._act(action, (), self._values.dtype, self._values.shapes())  # type: ignore[no-any-return]

    @abc.abstractmethod
    def _start(self, variables: Sequence[Any]) -> None:
        """Starts native code, with these variables; a collective call."""

    @abc.abstractmethod
    def _exchange(self, optimizer: Any, grads: Sequence[Any], variables: Sequence[Any]) -> None:
        """Applies this rank's gradients, and exchanges what that has changed."""


def _check_options(distribution: Distribution, transports: tuple[type, ...]) -> None:
    options = distribution.reducer.options
    carried = options.transport is None or isinstance(options.transport, transports)
    names = " or ".join(f"trepak.{one.__name__}()" for one in transports)
    reasons = {
        "op must be Average": options.op != collectives.Average,
        f"transport= must be {names}"
        if names
        else "transport= carries the gradients of bulk synchronous steps": not carried,
        "compression is not for it": options.compression is not collectives.Compression.none,
        "it has no predivide factor": options.gradient_predivide_factor != 1.0,
        "it is for all ranks, not a process set": options.process_set.process_set_id != 0,
    }
    reason = next((reason for reason, holds in reasons.items() if holds), None)
    if reason is not None:
        raise ValueError(
            f"with sync={type(distribution.sync).__name__}() ranks go at their own pace: {reason}."
        )

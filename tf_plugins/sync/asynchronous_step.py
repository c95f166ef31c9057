"""Steps that ranks take at their own pace: not one reduction for each."""

from __future__ import annotations

import abc
from collections.abc import Sequence
from typing import Any, ClassVar

from trepak.horovod_ext import basics
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
    diverges = True
    transports: ClassVar[tuple[type, ...]] = ()

    def __init__(self, distribution: Distribution) -> None:
        """Makes it; see `Step`."""
        super().__init__(distribution)
        self._check_options("go at their own pace", self.transports)

    def begin(self, optimizer: Any) -> None:
        """Warns that nothing waits for the next step; see `Step.begin`."""
        self._warn_of_no_overlap(optimizer)

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
        self._reject_local(variables)
        reducer.agree(grads, variables)
        self._step(optimizer, grads, variables)

    @abc.abstractmethod
    def _step(self, optimizer: Any, grads: Sequence[Any], variables: Sequence[Any]) -> None:
        """Ends a step of this rank's, one of several."""

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

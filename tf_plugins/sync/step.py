"""What ends the steps of one distributed optimizer: the interface of every way to do so."""

from __future__ import annotations

# ruff: noqa: B027  (some methods are for those that have something to do there)
import abc
from collections.abc import Sequence
from typing import Any, ClassVar

from trepak.horovod_ext import collectives, sessions
from trepak.horovod_ext.stragglers import RoundsOfRank
from trepak.ops.loader import load
from trepak.tf_plugins.optimizer.distribution import Distribution


class Step(abc.ABC):
    """Made by a sync model for one optimizer, whose distribution it shares.

    Attributes:
        is_synchronous: whether all ranks take each step together.
        shares_slots: whether all ranks have the same optimizer state after `drain`, too.
        system: of the native session that it has, if any.
        session: its number; None: nothing is exchanged yet.
    """

    is_synchronous: ClassVar[bool] = True
    shares_slots: ClassVar[bool] = True
    system: ClassVar[str] = ""
    session: Any = None

    def __init__(self, distribution: Distribution) -> None:
        """Makes it; nothing runs before the first step.

        Args:
            distribution: of the optimizer.

        Raises:
            ValueError: the optimizer's other options don't go with it.
        """
        self._distribution = distribution

    @abc.abstractmethod
    def apply(self, optimizer: Any, grads: Sequence[Any], variables: Sequence[Any]) -> None:
        """Ends a step of this rank's: called while its tf.function is traced, or eagerly.

        Args:
            optimizer: the distributed one, whose `_apply_plainly` changes the variables.
            grads: this rank's gradients: tensors, IndexedSlices or None.
            variables: the variables that they belong to.
        """

    def reduce(self, grads: Sequence[Any], variables: Sequence[Any]) -> list[Any]:
        """Returns the gradients of one step of all ranks, where there are such.

        Raises:
            ValueError: there are none.
        """
        raise ValueError(
            f"with {type(self._distribution.sync).__name__} there are no gradients of one step of "
            "all ranks: leave out compute_gradients() and gradient_accumulation_steps "
            "(backward_passes_per_step does the latter)."
        )

    def begin(self, optimizer: Any) -> None:
        """Opens a step before its forward pass, so that transfers overlap it; see `begin_step`."""

    def resume(self) -> None:
        """Has what was exchanged before Horovod was shut down go on; a collective call."""

    def _act(
        self,
        action: str,
        values: Sequence[Any] = (),
        dtype: Any = "float32",
        shapes: Sequence[Any] = (),
    ) -> Any:
        """Does one of the actions with which the native system is registered.

        Args:
            action: its name, such as "assign".
            values: tensors of the dtype and shapes that the session was opened with, or none.
            dtype: of what it returns.
            shapes: of what it returns.

        Returns:
            A list of tensors, where there are shapes; otherwise the op, which ends when it is done.

        Raises:
            HorovodInternalError: the system has failed; when the op runs.
        """
        made = load().trepak_act(
            list(values),
            num_made=len(shapes),
            T=dtype,
            shapes=list(shapes),
            system=self.system,
            session=self.session,
            action=action,
        )
        return list(made) if shapes else made

    def _over_ranks(self, values: Sequence[Any]) -> list[Any]:
        """Returns the means over all ranks of tensors of one dtype; a collective call."""
        name = f"trepak_{self.system}_means_{self.session}_{values[0].dtype.name}"
        return collectives.grouped_allreduce(list(values), op=collectives.Average, name=name)

    @abc.abstractmethod
    def drain(self, optimizer: Any) -> None:
        """Waits until all ranks do, and gives all of them the same weights; a collective call."""

    def end(self) -> None:
        """Is done: another step takes its place."""

    def rounds(self) -> RoundsOfRank:
        """Returns what this rank has brought so far, of what all systems count."""
        return RoundsOfRank(0, 0, 0, 0, 0)

    def statistics(self) -> dict[str, Any]:
        """Returns what the system has counted on this rank so far: its own names, with units."""
        return {} if self.session is None else sessions.statistics(self.system, self.session)

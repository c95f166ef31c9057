"""What ends the steps of one distributed optimizer: the interface of every way to do so."""

from __future__ import annotations

# ruff: noqa: B027  (some methods are for those that have something to do there)
import abc
import contextlib
import itertools
import warnings
from collections.abc import Iterator, Sequence
from typing import Any, ClassVar

from trepak.horovod_ext import basics, collectives, sessions
from trepak.horovod_ext.stragglers import RoundsOfRank
from trepak.horovod_ext.variables import key, text_of
from trepak.ops.loader import load
from trepak.tf_plugins.optimizer.distribution import Distribution


class Step(abc.ABC):
    """Made by a sync model for one optimizer, whose distribution it shares.

    Attributes:
        is_synchronous: whether all ranks take equally many steps, and end an epoch together.
        diverges: whether ranks have different weights between one `drain` and the next.
        counts_samples: whether it wants to know how many samples each step is of; see `count`.
        shares_slots: whether all ranks have the same optimizer state after `drain`, too.
        system: of the native session that it has, if any.
        session: its number; None: nothing is exchanged yet.
    """

    is_synchronous: ClassVar[bool] = True
    diverges: ClassVar[bool] = False
    counts_samples: ClassVar[bool] = False
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
        self._warned = False  # that nothing overlaps

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

    def count(self, samples: Any) -> None:
        """Is told of a batch before its gradients come: how many samples it has, an integer."""

    def resume(self) -> None:
        """Has what was exchanged before Horovod was shut down go on; a collective call."""

    def restart(self) -> None:
        """Forgets what was counted since the last `drain`: all ranks go on from equal values."""

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

    def _check_options(
        self, does: str, transports: tuple[type, ...] = (), process_sets: bool = False
    ) -> None:
        """Raises ValueError for options that are for gradients reduced in each step.

        Args:
            does: what ranks do in place of it, for the message.
            transports: classes of transports that may carry what is exchanged.
            process_sets: whether some of the ranks may train together.
        """
        options = self._distribution.reducer.options
        carried = options.transport is None or isinstance(options.transport, transports)
        names = " or ".join(f"trepak.{one.__name__}()" for one in transports)
        reasons = {
            "op must be Average": options.op != collectives.Average,
            f"transport= must be {names}"
            if names
            else "transport= carries the gradients of bulk synchronous steps": not carried,
            "compression is not for it": options.compression is not collectives.Compression.none,
            "it has no predivide factor": options.gradient_predivide_factor != 1.0,
            "it is for all ranks, not a process set": not process_sets
            and options.process_set.process_set_id != 0,
        }
        reason = next((reason for reason, holds in reasons.items() if holds), None)
        if reason is not None:
            sync = type(self._distribution.sync).__name__
            raise ValueError(f"with sync={sync}() ranks {does}: {reason}.")

    def _reject_local(self, variables: Sequence[Any]) -> None:
        """Raises ValueError if one of the variables is local to a rank."""
        local = [v for v in variables if self._distribution.reducer.is_local(v)]
        if local:
            raise ValueError(
                f"variable {local[0].path} is local to each rank, but "
                f"{type(self._distribution.sync).__name__} is for all variables of an optimizer: "
                "give it one of its own."
            )

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

    @contextlib.contextmanager
    def _at_rate(self, rate: Any) -> Iterator[None]:
        """Has the optimizer see another learning rate; not its schedule, and no callback."""
        self._distribution.learning_rate = rate
        try:
            yield
        finally:
            self._distribution.learning_rate = None

    def _warn_of_no_overlap(self, optimizer: Any) -> None:
        """Warns, once, that no transfer of this system's overlaps the next step."""
        if not self._warned:
            self._warned = True
            warnings.warn(
                f"{optimizer.name}: gradients are not applied one by one, so their transfer does "
                f"not overlap the next step: {self._distribution.sync!r} does not wait for them.",
                stacklevel=3,
            )

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

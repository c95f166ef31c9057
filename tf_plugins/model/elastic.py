"""Elastic training: state that survives ranks coming and going, on Keras 3."""

from __future__ import annotations

import abc
import functools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import tensorflow as tf
from horovod.common.elastic import run_fn
from horovod.common.exceptions import HorovodInternalError, HostsUpdatedInterrupt  # noqa: F401

from trepak.horovod_ext import basics, membership
from trepak.horovod_ext.broadcasting import broadcast_variables
from trepak.horovod_ext.reduced_sites import ReducedSites
from trepak.horovod_ext.variables import check_agreement, tf_variable
from trepak.tf_plugins.model import saved_values
from trepak.tf_plugins.model.member_state import RUN, TERMINATED, MemberState, check_kind, say
from trepak.tf_plugins.model.model_hooks import flush_hooks

# Batches per epoch of a rank, and ranks, in which a state's `batch` is counted.
COUNTED_IN = "batch_counted_in"


def run(func: Callable[..., Any]) -> Callable[..., Any]:
    """Decorates a training function so that it starts again when ranks are lost or added.

    Before each start the state is synchronized from rank 0; after a failed collective it is first
    restored to its last commit. `func` must make no collective call before it uses its state.

    In a job that `trepak elastic` has started, a rank that gets SIGTERM leaves with all ranks of
    its host when states look for other hosts; the process then ends with 0. If all have notice,
    all end with 143. A script that has fitted linear models in the job gets ValueError.

    Args:
        func: takes a state as first argument.
    """
    first_stream: int | None = None

    @functools.wraps(func)
    def training(state: Any, *args: Any, **kwargs: Any) -> Any:
        # An optimizer that is made in here is made anew after each reset. Its collectives must be
        # named on the ranks that stay as on those that join, which make it for the first time.
        nonlocal first_stream
        if first_stream is None:
            first_stream = ReducedSites.streams
        ReducedSites.streams = first_stream
        return func(state, *args, **kwargs)

    restarted = run_fn(training, _reset)

    @functools.wraps(func)
    def watched(state: Any, *args: Any, **kwargs: Any) -> Any:
        check_kind(getattr(state, "kind", RUN))
        membership.watch()
        try:
            return restarted(state, *args, **kwargs)
        finally:
            membership.unwatch()

    return watched


def _reset() -> None:
    rank = f"rank {basics.rank()}" if basics.is_initialized() else "a rank"
    basics.shutdown()
    if membership.is_over():
        raise SystemExit(TERMINATED)  # before it waits for ranks, or a driver, that are gone
    if membership.is_left_out():
        membership.take_leave()
        say(f"{membership.host()}, {rank}, has left the job.")
        raise SystemExit(0)
    basics.init()


class TensorFlowState(MemberState):
    """State made of TensorFlow or Keras variables, and of further attributes."""

    kind = RUN

    def __init__(
        self, variables: Sequence[Any] | None = None, session: Any = None, **kwargs: Any
    ) -> None:
        """Saves the variables' present values as the first commit.

        Args:
            variables: what to track, in the same order on every rank.
            session: accepted for Horovod scripts; must be None.
            kwargs: further attributes to synchronize, e.g. `epoch=0`.

        Raises:
            ValueError: no variables, or a TensorFlow 1 session.
        """
        if not variables:
            raise ValueError("TensorFlowState needs the variables to track.")
        if session is not None:
            raise ValueError("TensorFlowState works eagerly: leave out the session.")
        if "batch" in kwargs:
            kwargs.setdefault(COUNTED_IN, None)  # it is committed and synchronized with `batch`
        self.variables = [tf_variable(v) for v in variables]
        self._saved: list[Any] = []
        self._save_variables()
        super().__init__(**kwargs)

    def save(self) -> None:
        """Commits the values in this rank's memory."""
        self._save_variables()
        super().save()

    def restore(self) -> None:
        """Goes back to the last commit."""
        for variable, value in zip(self.variables, self._saved, strict=True):
            variable.assign(value)
        super().restore()

    def check_host_updates(self) -> None:
        """Raises HostsUpdatedInterrupt if there are other hosts; a collective call.

        The present values are committed before, since `sync` makes ranks go on from a commit.
        """
        try:
            super().check_host_updates()
        except HostsUpdatedInterrupt:
            self.save()
            raise

    def sync(self) -> None:
        """Takes rank 0's values on all ranks, and commits them; a collective call.

        Raises:
            ValueError: the ranks track different variables.
        """
        check_agreement([], "the variables of the elastic state", unnamed=self.variables)
        broadcast_variables(self.variables, root_rank=0)
        self._save_variables()
        super().sync()

    def _save_variables(self) -> None:
        self._saved = [tf.identity(variable) for variable in self.variables]


class MovingData(abc.ABC):
    """Data of which each rank has a part, and which stays whole while ranks come and go.

    It keeps the state of the model beside its own, so that both are of the same moment.
    """

    @abc.abstractmethod
    def join(
        self, state: MemberState, save: Callable[[], dict[str, np.ndarray]]
    ) -> dict[str, np.ndarray] | None:
        """Makes the data whole among the ranks that there are now; a collective call.

        Args:
            state: that hears of other hosts.
            save: returns what the model has now; called at each commit.

        Returns:
            What the model is to have; None: nobody has begun, and `begin` follows.
        """

    @abc.abstractmethod
    def begin(self) -> None:
        """Begins, with the model as it is on all ranks; a collective call."""

    @abc.abstractmethod
    def commit_soon(self) -> None:
        """Has the data commit when it can."""


class TensorFlowKerasState(TensorFlowState):
    """State made of a Keras model, its optimizer, and further attributes."""

    def __init__(
        self,
        model: Any,
        optimizer: Any = None,
        backend: Any = None,
        **kwargs: Any,
    ) -> None:
        """Saves the present values as the first commit.

        Args:
            model: a built Keras model.
            optimizer: its optimizer; by default the one it was compiled with.
            backend: accepted for Horovod scripts; unused.
            kwargs: further attributes to synchronize, e.g. `epoch=0, batch=0`. `data=` is none of
                them: it takes the `trepak.chicle.ChunkedDataset` that the model trains with, which
                then commits and looks for other hosts; attributes are of what JSON can hold.

        Raises:
            TypeError: `data` is something else.
            ValueError: the model is not built, or there is no optimizer; or an attribute does not
                go together with data.
        """
        if not model.built:
            raise ValueError("the model must be built first: run model.build(input_shape).")
        optimizer = optimizer or model.optimizer
        if optimizer is None:
            raise ValueError("pass the optimizer, or compile the model with one.")
        if not optimizer.built:
            optimizer.build(model.trainable_variables)
        self.model = model
        self.optimizer = optimizer
        self._data: MovingData | None = kwargs.pop("data", None)
        if self._data is not None:
            if not isinstance(self._data, MovingData):
                raise TypeError(
                    f"data= takes a trepak.chicle.ChunkedDataset, got {self._data!r:.200}."
                )
            saved_values.check_attributes(kwargs)
        super().__init__([*model.weights, *optimizer.variables], **kwargs)

    def save(self) -> None:
        """Commits the values in this rank's memory; gradients on their way are applied before."""
        self._flush()
        super().save()

    def restore(self) -> None:
        """Goes back to the last commit; with data, `sync` does: it may go on from now instead."""
        self._begin_anew()
        if self._data is None:
            super().restore()

    def commit(self) -> None:
        """Commits, and looks for other hosts; the data do that soon, if they are part of it."""
        if self._data is None:
            super().commit()
        else:
            self._data.commit_soon()

    def sync(self) -> None:
        """Takes rank 0's values on all ranks, and commits them; a collective call."""
        self._begin_anew()
        if self._distribution is not None:
            self._distribution.reducer.meet()
        saved = None if self._data is None else self._data.join(self, self._all)
        if saved is None:
            super().sync()
            if self._data is not None:
                self._data.begin()
        else:
            self._take(saved)

    def _all(self) -> dict[str, np.ndarray]:
        """Returns all variables and attributes of now."""
        attributes = {name: getattr(self, name) for name in self._saved_state}
        return saved_values.packed(self.variables, attributes)

    def _take(self, saved: dict[str, np.ndarray]) -> None:
        """Takes what `_all` has returned, on this rank or on another."""
        self._saved_state = saved_values.unpacked(saved, self.variables)
        self._save_variables()
        self._set_attrs()

    def _flush(self) -> None:
        flush_hooks(self.model)
        if hasattr(self.optimizer, "flush"):
            self.optimizer.flush()

    @property
    def _distribution(self) -> Any:
        return getattr(self.optimizer, "_trepak", None)

    def _begin_anew(self) -> None:
        """Starts counting passes and steps anew, so that all ranks exchange in the same one."""
        if self._distribution is None:
            return
        if self._distribution.accumulator is not None:
            self._distribution.accumulator.reset()
        self._distribution.step.restart()


class KerasState(TensorFlowKerasState):
    """State made of a Keras model, its optimizer, and further attributes."""

    def __init__(self, model: Any, optimizer: Any = None, **kwargs: Any) -> None:
        """See `TensorFlowKerasState`."""
        super().__init__(model, optimizer=optimizer, **kwargs)

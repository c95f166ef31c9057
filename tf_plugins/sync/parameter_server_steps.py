"""Steps whose changes go to the job's parameter servers, from which all ranks go on."""

from __future__ import annotations

import abc
from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf
from numpy.typing import NDArray

from trepak.horovod_ext import basics, elastic_bsp, exchange, step_probe
from trepak.horovod_ext.elastic_bsp import StepOptions
from trepak.horovod_ext.stragglers import RoundsOfRank
from trepak.ops.loader import call
from trepak.tf_plugins.optimizer.distribution import Distribution
from trepak.tf_plugins.sync.asynchronous_step import LocalStep
from trepak.tf_plugins.sync.sync_model import SyncModel
from trepak.tf_plugins.transport.parameter_servers import ParameterServers, default_servers


class ServedSyncModel(SyncModel):
    """A sync model whose ranks each apply their own gradients, to parameters on the servers."""

    def __post_init__(self) -> None:
        """Raises ValueError for options that are wrong."""
        self._options()

    @abc.abstractmethod
    def _options(self) -> StepOptions:
        """Returns how far ranks may go."""

    def step_for(self, distribution: Distribution) -> ServerStep:
        """Returns the steps of one optimizer; see `SyncModel.step_for`."""
        return ServerStep(distribution, self._options())


class ServerStep(LocalStep):
    """What one distributed optimizer has of ElasticBSP, SSP or ASP.

    A step applies this rank's own gradients, and adds what that has changed, divided by the number
    of ranks, to the job's parameters; these are what the next step begins with. The optimizer's
    slots stay on each rank. `transport=` says how the servers work, and with which priorities
    parameters travel.
    """

    system = "elastic_bsp"

    transports = (ParameterServers,)

    def __init__(self, distribution: Distribution, options: StepOptions) -> None:
        """Makes it; see `Step`."""
        super().__init__(distribution)
        self._options = options

    def _exchange(self, optimizer: Any, grads: Sequence[Any], variables: Sequence[Any]) -> None:
        ready_grads, ready = step_probe.mark_ready(grads)
        finite = _apply_if_finite(optimizer, ready_grads, list(variables), self._values.dtype)
        made = [*self._values.read(), finite]
        values = self._act("step", made, self._values.dtype, self._values.shapes())
        with tf.control_dependencies(values):
            step_probe.mark_done([], ready, at_own_pace=True)
        self._values.show(values)

    def _start(self, variables: Sequence[Any]) -> None:
        given = self._distribution.reducer.options.transport
        transport = given or default_servers()
        assert isinstance(transport, ParameterServers)
        transport.start()
        keys = self._distribution.reducer.keys_of(variables)
        transport.place(keys, variables)
        values = {**self._values.described(), "keys": keys}
        self.session = elastic_bsp.start(self._options, values)
        with tf.init_scope():
            if basics.rank() == 0:
                self._bring("assign")
            exchange.gather(None, "that the job's parameters are set")
            self._fetch()

    def _fetch(self) -> None:
        """Takes the job's parameters, on all ranks before any of them changes them again."""
        self._values.show(self._taken("fetch"))
        exchange.gather(None, "that all ranks have the job's parameters")

    def rounds(self) -> RoundsOfRank:
        """Returns how many barriers this rank has passed; those that take part contribute."""
        if self.session is None:
            return super().rounds()
        counted = self.statistics()
        return RoundsOfRank(
            counted["barriers"],
            counted["barriers"],
            counted["met"],
            0,
            0,
            counted["waiting_seconds"],
            counted["exchange_seconds"],
            counted["planned_error"] / max(1, counted["planned_predictions"]),
            counted["not_finite"],
            counted["planned_taken_out"],
        )

    def drain(self, optimizer: Any) -> None:
        """Waits until all ranks do, and gives all of them the job's parameters; see `Step`."""
        if self.session is None:
            return
        with tf.init_scope():
            self._bring("drain")
            self._fetch()


def recorded_steps(optimizer: Any) -> NDArray[np.float64]:
    """Returns how long an optimizer's steps have taken, for `elastic_bsp_simulation.record_of`.

    Args:
        optimizer: distributed, with `sync=` ElasticBSP, SSP or ASP.

    Returns:
        float64, [steps, 4]: rank, end on rank 0's clock, computing and communication of each of the
        first 100,000 steps, in seconds; what a rank waits for others belongs to no step. On other
        ranks than 0, and before the first step, there are none.

    Raises:
        ValueError: another optimizer.
    """
    step = getattr(getattr(optimizer, "_trepak", None), "step", None)
    if not isinstance(step, ServerStep):
        raise ValueError(
            "steps are recorded of a DistributedOptimizer with sync= ElasticBSP, SSP or ASP, got "
            f"{optimizer!r}."
        )
    recorded: list[Any] = []
    if step.session is not None:
        recorded = call("elastic_bsp_recorded", session=step.session)
    return np.array(recorded, np.float64).reshape(-1, 4)


def _apply_if_finite(
    optimizer: Any, grads: Sequence[Any], variables: Sequence[Any], dtype: Any
) -> Any:
    """Applies gradients unless one of them is not finite, which an optimizer's slots never forget.

    Returns:
        Whether it has: 1 or 0, of that dtype.
    """
    values = [g.values if isinstance(g, tf.IndexedSlices) else g for g in grads if g is not None]
    finite = tf.reduce_all([tf.reduce_all(tf.math.is_finite(value)) for value in values])

    def apply() -> Any:
        optimizer._apply_plainly(list(grads), list(variables))
        return tf.constant(1, dtype)

    return tf.cond(finite, apply, lambda: tf.constant(0, dtype))

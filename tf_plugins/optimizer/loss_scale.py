"""Loss scaling over several ranks: reduce the scaled gradients first, then judge them.

Keras' LossScaleOptimizer skips a step if this process's gradients hold an inf or nan. Ranks that
judge for themselves would part ways, and wait for each other for ever. Judged after the reduction,
one rank's inf is every rank's inf.
"""

from __future__ import annotations

import functools
from typing import Any

import keras
import tensorflow as tf

from trepak.horovod_ext import collectives
from trepak.tf_plugins.model.keras_changes import change
from trepak.tf_plugins.optimizer.distributed_optimizer import DistributedMixin, distributed_class
from trepak.tf_plugins.optimizer.distribution import Distribution


class DistributedLossScaleMixin(DistributedMixin):
    """Reduces scaled gradients, so that finiteness is checked alike on all ranks."""

    def _keras_accumulates(self) -> bool:
        return bool(self.inner_optimizer.gradient_accumulation_steps)  # type: ignore[attr-defined]

    def _reduce_and_apply(self, grads: list[Any], variables: list[Any]) -> None:
        if self._keras_accumulates():
            self._trepak.reducer.agree(grads, variables)
        super()._reduce_and_apply(grads, variables)

    def _apply_plainly(self, grads: list[Any], variables: list[Any]) -> None:
        self._trepak.delegating = True
        try:
            super()._apply_plainly(grads, variables)
        finally:
            self._trepak.delegating = False

    def check_finite(self, grads: Any) -> Any:
        """Tells, alike on all ranks, whether every gradient is finite; a bool scalar."""
        finite = super().check_finite(grads)  # type: ignore[misc]
        reducer = self._trepak.reducer
        if not self._keras_accumulates() or not reducer.takes_part():
            return finite
        # The gradients of a pass that only accumulates are not reduced, so the verdict is.
        # Of how it can be bad, as a rank that has joined adds a zero.
        verdict = collectives.allreduce(
            tf.cast(tf.logical_not(finite), tf.int32),
            op=collectives.Max,
            name=reducer.collective_name("finite"),
            ignore_name_scope=True,
            process_set=reducer.options.process_set,
        )
        return tf.equal(verdict, 0)

    @property
    def iterations(self) -> Any:
        """The inner optimizer's count."""
        return self.inner_optimizer.iterations  # type: ignore[attr-defined]

    @classmethod
    def from_config(cls, config: dict[str, Any], *args: Any, **kwargs: Any) -> Any:
        """Returns an optimizer that is distributed alike, and shares nothing with this one."""
        optimizer = super().from_config(config, *args, **kwargs)
        _share(optimizer, optimizer._trepak)
        return optimizer

    def _counter(self) -> Any:
        return self.inner_optimizer._iterations  # type: ignore[attr-defined]

    def _stateful_handle_non_finite_grads(self) -> None:
        """Skips the step: its passes have led to none, so they don't count."""
        super()._stateful_handle_non_finite_grads()  # type: ignore[misc]
        self._count_passes(0)


def distribute(optimizer: Any, distribution: Distribution) -> Any:
    """Makes a LossScaleOptimizer reduce in place of the optimizer inside it; returns it."""
    _share(optimizer, distribution)
    optimizer.__class__ = distributed_class(
        type(optimizer), distribution, DistributedLossScaleMixin
    )
    return optimizer


def _share(optimizer: Any, distribution: Distribution) -> None:
    """Gives the optimizer inside the distribution too: it counts steps, and sums gradients."""
    inner = optimizer.inner_optimizer
    if not isinstance(inner, DistributedMixin):
        inner.__class__ = distributed_class(type(inner), distribution, DistributedMixin)


@functools.cache
def watch() -> None:
    """Sees to it that a LossScaleOptimizer made around a distributed optimizer takes over from it.

    There is no other place to learn of it before the first step.
    """

    def wrap(plain: Any) -> Any:
        def init(self: Any, inner_optimizer: Any, *args: Any, **kwargs: Any) -> None:
            plain(self, inner_optimizer, *args, **kwargs)
            distributed = isinstance(inner_optimizer, DistributedMixin)
            if distributed and not isinstance(self, DistributedMixin):
                distribute(self, inner_optimizer._trepak)

        return init

    why = "compile() makes one around the optimizer under the mixed_float16 policy"
    change(keras.optimizers.LossScaleOptimizer, "__init__", wrap, why)

"""Rounds whose ranks go on with their own gradients meanwhile (thesis, section 5.4)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from trepak.horovod_ext import basics
from trepak.horovod_ext.broadcasting import broadcast_variables
from trepak.horovod_ext.variables import tf_variable
from trepak.ops import rna as native
from trepak.tf_plugins.sync.rna_rounds import Rounds


class LocalRounds(Rounds):
    """A step after which no round has ended applies its own gradient, as a round of it alone would.

    The gradient goes into a round as well, so it counts twice on this rank, and replicas drift
    apart; `drain` averages them.
    """

    def _before_rounds(self, optimizer: Any, gradients: Sequence[Any]) -> None:
        finite = tf.reduce_all([tf.reduce_all(tf.math.is_finite(grad)) for grad in gradients])
        missed = tf.logical_and(native.finished_rounds(self.session) == 0, finite)
        alone = native.RnaRound(
            list(gradients),
            share=tf.where(missed, tf.constant(1.0 / basics.size(), tf.float64), 0.0),
            rate=self._rate(optimizer),
            is_exchange=False,
            exchanges=False,
        )
        self._apply(optimizer, alone)

    def drain(self, optimizer: Any) -> None:
        """Applies what waits, and gives all ranks the mean of their replicas; see `Step`."""
        super().drain(optimizer)
        if self.session is None:
            return
        with tf.init_scope():
            state = [*map(tf_variable, [*self._variables, *optimizer.variables]), self._progress]
            for dtype in dict.fromkeys(variable.dtype for variable in state):
                alike = [variable for variable in state if variable.dtype == dtype]
                if dtype.is_floating:
                    self._average(alike)
                else:
                    broadcast_variables(alike, root_rank=0)

    def _average(self, variables: Sequence[Any]) -> None:
        """Gives variables of one dtype the mean over all ranks."""
        means = self._over_ranks([variable.value() for variable in variables])
        for variable, mean in zip(variables, means, strict=True):
            variable.assign(mean)

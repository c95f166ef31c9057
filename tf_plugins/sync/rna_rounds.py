"""Steps that end in rounds: gradients go out when they are there, rounds come in when they end.

Every rank applies every round's average once, in the order of rounds, however many have ended since
its last step. So all ranks that have applied as many rounds have the same weights.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import keras
import tensorflow as tf

from trepak.horovod_ext import rna, sessions, step_probe
from trepak.horovod_ext.stragglers import RoundsOfRank
from trepak.horovod_ext.variables import key, outside_graph, tf_variable
from trepak.ops import rna as native
from trepak.tf_plugins.model.tracing import if_true, while_true
from trepak.tf_plugins.optimizer.distribution import Distribution
from trepak.tf_plugins.sync.asynchronous_step import AsynchronousStep

_ROUNDING = 1e-6  # of a step: six sixths are one


class Rounds(AsynchronousStep):
    """What one distributed optimizer has of the rounds."""

    system = "rna"

    def __init__(
        self,
        distribution: Distribution,
        options: rna.RoundOptions,
        waits: bool = False,
        scales_rate: bool = True,
    ) -> None:
        """Makes it; nothing runs before the first step.

        Args:
            distribution: of the optimizer.
            options: of the rounds.
            waits: a step waits until there is a round to apply.
            scales_rate: a round with some ranks' gradients is applied at their share of the
                learning rate; otherwise at their share of the gradient.

        Raises:
            ValueError: the optimizer's other options don't go with rounds.
        """
        super().__init__(distribution)
        self._options = options
        self._waits = waits
        self._scales_rate = scales_rate
        # Counted before rounds were started again.
        self._before, self._copied_before = RoundsOfRank(0, 0, 0, 0, 0), 0.0
        self._variables: list[Any] = []
        self._summed: list[Any] = []  # those that have gradients
        self._dtype: Any = None
        self._finish: Any = None  # drain(), compiled
        # Steps of full participation so far: what a schedule of the learning rate sees.
        self._progress: Any = None

    def _step(self, optimizer: Any, grads: Sequence[Any], variables: Sequence[Any]) -> None:
        """Hands a step's gradients over, and applies the rounds that have ended.

        Raises:
            ValueError: gradients of other variables than in the first step.
        """
        summed, ready = step_probe.mark_ready(self._start(optimizer, grads, variables))
        handed = native.write_gradients(self.session, summed, self._rate(optimizer))
        if self._waits:
            with tf.control_dependencies([handed]):
                handed = self._act("await")
        step_probe.mark_done([], ready, at_own_pace=True)
        # TensorFlow orders a loop by the variables in it, and these ops have none.
        with tf.control_dependencies([handed]):
            self._before_rounds(optimizer, summed)
            while_true(
                lambda: native.finished_rounds(self.session) > 0, lambda: self._apply_one(optimizer)
            )

    def _before_rounds(self, optimizer: Any, gradients: Sequence[Any]) -> None:
        """Does what a step does before it applies rounds; nothing here."""

    def drain(self, optimizer: Any) -> None:
        """Waits until all ranks do, and applies what has not been; a collective call."""
        if self.session is None:
            return
        if self._finish is None:
            self._finish = tf.function(lambda: self._drain(optimizer), autograph=False)
        with tf.init_scope():
            self._finish()

    def _drain(self, optimizer: Any) -> None:
        def wait_and_apply() -> None:
            with tf.control_dependencies([self._act("await")]):
                self._apply_one(optimizer)

        with tf.control_dependencies([self._act("drain")]):
            while_true(lambda: native.remaining_rounds(self.session) > 0, wait_and_apply)

    def rounds(self) -> RoundsOfRank:
        """Returns what this rank has brought to the rounds so far."""
        if self.session is None:
            return self._before
        counted = self.statistics()
        names = ("rounds", "contributed", "contributors", "staleness", "dropped", "not_finite")
        sums = {name: getattr(self._before, name) + counted[name] for name in names}
        return RoundsOfRank(**sums)

    def statistics(self) -> dict[str, Any]:
        """Returns RNA's counters; seconds of copying are those of all groups so far."""
        counted = super().statistics()
        if counted:
            counted["copy_seconds"] += self._copied_before
        return counted

    def _begin(self) -> None:
        """Starts the rounds."""
        self.session = rna.start(self._options, self._described())

    def _start(self, optimizer: Any, grads: Sequence[Any], variables: Sequence[Any]) -> list[Any]:
        """Returns the gradients that a round sums; the first time, starts the rounds."""
        summed = [v for grad, v in zip(grads, variables, strict=True) if grad is not None]
        if self.session is None:
            self._variables, self._summed = list(variables), summed
            wide = any(tf.as_dtype(v.dtype) == tf.float64 for v in summed)
            self._dtype = tf.float64 if wide else tf.float32
            self._begin()
            with outside_graph():
                self._progress = tf.Variable(
                    tf.cast(optimizer._iterations, tf.float64), trainable=False
                )
        self._check_same(self._summed, summed)
        dense = [tf.convert_to_tensor(grad) for grad in grads if grad is not None]
        return [tf.cast(grad, self._dtype) for grad in dense]

    def _shapes(self) -> list[Any]:
        return [tf_variable(variable).shape for variable in self._summed]

    def _described(self) -> dict[str, Any]:
        return sessions.described(self._dtype, self._shapes())

    def _rate(self, optimizer: Any) -> Any:
        """Returns this rank's learning rate of now; a schedule sees steps of full participation.

        It travels with the gradient: a round is applied with the mean of its contributors' rates,
        so that all ranks apply it alike, whatever a callback has set on one of them meanwhile.
        """
        rate = optimizer._learning_rate
        if isinstance(rate, keras.optimizers.schedules.LearningRateSchedule):
            whole = tf.floor(self._progress + _ROUNDING)
            return tf.cast(rate(tf.cast(whole, tf.int64)), tf.float32)
        return tf.cast(optimizer.learning_rate, tf.float32)

    def _apply_one(self, optimizer: Any) -> native.RnaRound:
        """Reads a round and applies it."""
        read = native.read_round(self.session, self._dtype, self._shapes())
        self._progress.assign_add(read.share)
        self._apply(optimizer, read)
        return read

    def _apply(self, optimizer: Any, read: native.RnaRound) -> None:
        def apply() -> None:
            share = tf.cast(read.share, read.rate.dtype)
            with self._at_rate(read.rate * share if self._scales_rate else read.rate):
                optimizer._apply_plainly(self._means(read), self._variables)

        # Nobody contributes where the gradients of all that were ready are not finite.
        if_true(read.share > 0, apply)

    def _means(self, read: native.RnaRound) -> list[Any]:
        """Returns a gradient for each variable of the optimizer; None where there is none."""
        means = read.gradients
        if not self._scales_rate:
            means = [grad * tf.cast(read.share, grad.dtype) for grad in means]
        by_variable = {
            key(variable): tf.cast(grad, variable.dtype)
            for grad, variable in zip(means, self._summed, strict=True)
        }
        return [by_variable.get(key(variable)) for variable in self._variables]

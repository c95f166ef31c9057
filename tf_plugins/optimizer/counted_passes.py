"""How an optimizer counts where the gradients of several backward passes make one step."""

from __future__ import annotations

from typing import Any

import keras
import tensorflow as tf

from trepak.tf_plugins.optimizer.distribution import Distribution


class CountedPasses:
    """Counts passes in `iterations`, and has schedules and updates see the steps they make.

    After s steps and p passes of the next one, `iterations` is s·n + p. It is set so with each
    pass, not only raised: passes that led to no step (a loss scale that was too large, sums that no
    checkpoint holds) are taken out again, and `iterations // n` is s, whatever came before.
    """

    _trepak: Distribution

    @property
    def iterations(self) -> Any:
        """The passes applied so far, as in Horovod; inside a real step, the steps before it.

        Adam's bias correction and the like depend on the latter: n summed passes are one step.
        """
        if self._trepak.iterations is not None:
            return self._trepak.iterations
        accumulator = self._trepak.accumulator
        if self._sums_passes() and accumulator is not None and accumulator.ending_step:
            return self._real_steps()
        return super().iterations  # type: ignore[misc]

    def _get_current_learning_rate(self) -> Any:
        """The rate of what is applied; a schedule counts real steps, not the passes of each."""
        if self._trepak.learning_rate is not None:
            return self._trepak.learning_rate
        schedule = self._learning_rate  # type: ignore[attr-defined]
        counts = isinstance(schedule, keras.optimizers.schedules.LearningRateSchedule)
        if counts and self._sums_passes():
            return schedule(self._real_steps())
        return super()._get_current_learning_rate()  # type: ignore[misc]

    def _sums_passes(self) -> bool:
        """Tells whether passes are counted: at ranks' own pace, what has been applied is."""
        return self._trepak.accumulator is not None and self._trepak.step.is_synchronous

    def _counter(self) -> Any:
        return self._iterations  # type: ignore[attr-defined]

    def _real_steps(self) -> Any:
        assert self._trepak.accumulator is not None
        return keras.ops.floor_divide(self._counter(), self._trepak.accumulator.passes)

    def _count_passes(self, summed: Any) -> None:
        """Notes how many passes of the next step there have been."""
        if self._sums_passes():
            assert self._trepak.accumulator is not None
            counter, passes = self._counter(), self._trepak.accumulator.passes
            counter.assign(self._real_steps() * passes + tf.cast(summed, counter.dtype))

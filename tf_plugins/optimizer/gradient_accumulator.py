"""Sums gradients on this rank over several backward passes, so that fewer are reduced."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

from trepak.horovod_ext.variables import key, outside_graph


class GradientAccumulator:
    """Sums the gradients of `passes` backward passes in variables of its own.

    They are not part of the optimizer's variables: a saved model is the plain Keras one.
    """

    def __init__(self, passes: int, average: bool) -> None:
        """Makes an empty accumulator.

        Args:
            passes: backward passes per real step, at least 2.
            average: divide the sums by `passes`.
        """
        self.passes = passes
        self.average = average
        self.ending_step = False  # while `apply` is traced: the optimizer then counts real steps
        self.counter: Any = None  # int32 scalar: passes summed since the last real step
        self._sums: dict[Any, Any] = {}  # per variable, made when it first has a gradient
        self._variables: list[Any] = []

    def step(
        self,
        grads: Sequence[Any],
        variables: Sequence[Any],
        apply: Callable[[list[Any]], None],
        skip: Callable[[], None],
    ) -> None:
        """Adds one pass's gradients; at the last pass applies their sum and starts again.

        Args:
            grads: tensors, IndexedSlices (summed densely) or None.
            variables: the variables that they belong to, the same in every pass.
            apply: called with the sums in a pass that ends a step.
            skip: called in any other pass.

        Raises:
            ValueError: other variables than before.
        """
        self._build(grads, variables)
        for grad, variable in zip(grads, variables, strict=True):
            if grad is not None:
                total = self._sums[key(variable)]
                total.assign_add(tf.cast(tf.convert_to_tensor(grad), total.dtype))
        self.counter.assign_add(1)

        def end_step() -> tf.Tensor:
            scale = 1.0 / self.passes if self.average else 1.0
            totals = [self._sums.get(key(variable)) for variable in variables]
            sums = [None if t is None else t.value() * tf.cast(scale, t.dtype) for t in totals]
            self.ending_step = True
            try:
                apply(sums)
            finally:
                self.ending_step = False
            self.reset()
            return tf.constant(True)

        def wait() -> tf.Tensor:
            skip()
            return tf.constant(False)

        tf.cond(tf.equal(self.counter, self.passes), end_step, wait)

    def summed(self) -> int:
        """Returns how many passes have been summed since the last real step."""
        return 0 if self.counter is None else int(self.counter)

    def reset(self) -> None:
        """Forgets the passes since the last real step."""
        for total in self._sums.values():
            total.assign(tf.zeros_like(total))
        if self.counter is not None:
            self.counter.assign(0)

    def _build(self, grads: Sequence[Any], variables: Sequence[Any]) -> None:
        if self.counter is None:
            with outside_graph():
                self.counter = tf.Variable(0, trainable=False, name="trepak_passes")
            self._variables = [key(variable) for variable in variables]
        if [key(variable) for variable in variables] != self._variables:
            raise ValueError(
                "backward_passes_per_step sums the gradients of all variables over the same "
                f"passes, but this one has {len(variables)} variables that are not those "
                f"{len(self._variables)} of the first. Pass all variables to every apply(), with "
                "None for those without a gradient, or use one optimizer per set of variables."
            )
        for grad, variable in zip(grads, variables, strict=True):
            if grad is not None and key(variable) not in self._sums:
                with outside_graph():
                    zeros = tf.zeros(variable.shape, variable.dtype)
                    self._sums[key(variable)] = tf.Variable(zeros, trainable=False)

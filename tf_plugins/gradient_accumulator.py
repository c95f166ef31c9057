"""Sums gradients on this rank over several backward passes, so that fewer are reduced."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

from trepak.tf_plugins.tracing import outside_graph


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
        self._sums: list[Any] = []

    def step(
        self,
        grads: Sequence[Any],
        variables: Sequence[Any],
        apply: Callable[[list[Any]], None],
        skip: Callable[[], None],
    ) -> None:
        """Adds one pass's gradients; at the last pass applies their sum and starts again.

        Args:
            grads: tensors, IndexedSlices (summed densely) or None, always in the same order.
            variables: the variables that they belong to.
            apply: called with the sums in a pass that ends a step.
            skip: called in any other pass.
        """
        self._build(grads, variables)
        for total, grad in zip(self._sums, grads, strict=True):
            if total is not None:
                total.assign_add(tf.cast(tf.convert_to_tensor(grad), total.dtype))
        self.counter.assign_add(1)

        def end_step() -> tf.Tensor:
            scale = 1.0 / self.passes if self.average else 1.0
            sums = [None if s is None else s.value() * tf.cast(scale, s.dtype) for s in self._sums]
            self.ending_step = True
            try:
                apply(sums)
            finally:
                self.ending_step = False
            for total in self._sums:
                if total is not None:
                    total.assign(tf.zeros_like(total))
            self.counter.assign(0)
            return tf.constant(True)

        def wait() -> tf.Tensor:
            skip()
            return tf.constant(False)

        tf.cond(tf.equal(self.counter, self.passes), end_step, wait)

    def _build(self, grads: Sequence[Any], variables: Sequence[Any]) -> None:
        if self.counter is not None:
            return
        with outside_graph():
            self.counter = tf.Variable(0, trainable=False, name="trepak_passes")
            self._sums = [
                None if g is None else tf.Variable(tf.zeros(v.shape, v.dtype), trainable=False)
                for g, v in zip(grads, variables, strict=True)
            ]

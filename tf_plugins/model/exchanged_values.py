"""Values of variables in the one dtype that ranks exchange, whatever dtypes the variables have."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from trepak.horovod_ext import basics, sessions
from trepak.horovod_ext.variables import outside_graph, tf_variable


class ExchangedValues:
    """What ranks exchange of an optimizer's variables.

    A variable of another dtype, as bfloat16, shows what came from others rounded. What that took
    away is kept apart: it is no change of this rank's, and many small changes of others, each of
    which rounds to nothing, are one that does not.

    Attributes:
        variables: the variables.
        dtype: float64 if one of the variables has it, otherwise float32.
    """

    def __init__(self, variables: Sequence[Any]) -> None:
        """Keeps the variables, of Keras or TensorFlow; may be called while a step is traced.

        Raises:
            TypeError: a variable does not hold floating-point numbers.
        """
        self.variables = [tf_variable(variable) for variable in variables]
        for variable in self.variables:
            if not variable.dtype.is_floating:
                raise TypeError(
                    f"rank {basics.rank()}: variable {variable.name!r} is {variable.dtype.name}. "
                    "Ranks that go at their own pace exchange floating-point variables; train "
                    "this one with sync=BSP()."
                )
        wide = any(variable.dtype == tf.float64 for variable in self.variables)
        self.dtype: Any = tf.float64 if wide else tf.float32
        with outside_graph():
            self._exact = [self._copy(variable) for variable in self.variables]

    def _copy(self, variable: Any) -> Any:
        if variable.dtype == self.dtype:
            return None  # it is exact itself
        return tf.Variable(tf.cast(variable.value(), self.dtype), trainable=False)

    def described(self) -> dict[str, Any]:
        """Returns their dtype and shapes, as a session's options say them."""
        return sessions.described(self.dtype, self.shapes())

    def shapes(self) -> list[Any]:
        """Returns the variables' shapes."""
        return [variable.shape for variable in self.variables]

    def read(self) -> list[Any]:
        """Returns what was shown last, with what has changed in the variables since."""
        return [
            self._read(variable, exact)
            for variable, exact in zip(self.variables, self._exact, strict=True)
        ]

    def _read(self, variable: Any, exact: Any) -> Any:
        value = tf.cast(variable.value(), self.dtype)
        if exact is None:
            return value
        shown = tf.cast(tf.cast(exact.value(), variable.dtype), self.dtype)
        # What is shown of a very large one is infinite.
        changed = tf.where(tf.math.is_finite(shown), exact.value() + (value - shown), value)
        return tf.where(value == shown, exact.value(), changed)

    def show(self, values: Sequence[Any]) -> None:
        """Gives the variables these values, which are of `dtype`."""
        for variable, exact, value in zip(self.variables, self._exact, values, strict=True):
            if exact is not None:
                exact.assign(value)
            variable.assign(tf.cast(value, variable.dtype))

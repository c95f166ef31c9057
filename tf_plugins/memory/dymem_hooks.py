"""What Dymem changes in Keras and TensorFlow.

Errors tell what lies in the pool, and once a warning says what trains where Dymem can't see it.
"""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable
from typing import Any

import tensorflow as tf
from keras.src.backend.tensorflow.trainer import TensorFlowTrainer

from trepak.ops.loader import call
from trepak.tf_plugins.model.keras_changes import change

_TRAINS = ("fit", "evaluate", "predict", "train_on_batch", "test_on_batch", "predict_on_batch")
_XLA = (
    "XLA compiles the step of this model (jit_compile=True), and Dymem can't see into it: nothing "
    'is swapped. Compile the model with jit_compile=False; the default, "auto", may choose XLA.'
)
_EAGER = (
    "A GradientTape has no tf.function around it (or the model run_eagerly=True), and Dymem works "
    "on graphs: nothing is swapped. Put the whole step into a tf.function."
)
# The first may but build something.
_LEAST_EAGER = 2


@functools.cache
def install() -> None:
    """Puts the changes in place, once; call it where a Dymem is made."""
    says = "TensorFlow's error tells nothing of Dymem's pool"
    for method in _TRAINS:
        change(TensorFlowTrainer, method, _with_map, says)
    change(TensorFlowTrainer, "make_train_function", _without_xla, "XLA hides the step from Dymem")
    change(tf.GradientTape, "gradient", _in_a_graph, "eager gradients are no graph for Dymem")


def _with_map(plain: Callable[..., Any]) -> Callable[..., Any]:
    def run(self: Any, *args: Any, **kwargs: Any) -> Any:
        call("dymem_take_shortage")  # of what failed before
        try:
            return plain(self, *args, **kwargs)
        except tf.errors.OpError as error:  # of a constant without room TensorFlow says "invalid"
            told = call("dymem_take_shortage")
            if not told:
                raise
            raise tf.errors.ResourceExhaustedError(
                error.node_def, error.op, f"{told}\nTensorFlow says: {error.message}"
            ) from error

    return run


def _without_xla(plain: Callable[..., Any]) -> Callable[..., Any]:
    def make_train_function(self: Any, *args: Any, **kwargs: Any) -> Any:
        made = plain(self, *args, **kwargs)
        if self.jit_compile and not self.run_eagerly:
            _warn_once(_XLA)
        return made

    return make_train_function


def _in_a_graph(plain: Callable[..., Any]) -> Callable[..., Any]:
    eager = 0

    @tf.autograph.experimental.do_not_convert  # a function that is traced may call it
    def gradient(self: Any, *args: Any, **kwargs: Any) -> Any:
        nonlocal eager
        if eager < _LEAST_EAGER and tf.executing_eagerly():
            eager += 1
            if eager == _LEAST_EAGER and not call("dymem_statistics")["graphs"]:
                _warn_once(_EAGER)
        return plain(self, *args, **kwargs)

    return gradient


@functools.cache
def _warn_once(text: str) -> None:
    warnings.warn(text, stacklevel=4)

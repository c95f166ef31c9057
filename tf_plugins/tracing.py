"""Questions about the function that TensorFlow is tracing."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import tensorflow as tf
from tensorflow.python.ops import control_flow_util


@contextlib.contextmanager
def outside_graph() -> Iterator[None]:
    """Runs the block eagerly on the host, also while a tf.function is traced."""
    with tf.init_scope():
        yield


def reject_xla() -> None:
    """Refuses to be traced into a function that XLA compiles: collectives cannot be.

    Raises:
        ValueError: says how to turn compilation off.
    """
    graph = tf.compat.v1.get_default_graph() if not tf.executing_eagerly() else None
    if graph is not None and control_flow_util.GraphOrParentsInXlaContext(graph):
        raise ValueError(
            "this training step is to be compiled by XLA (jit_compile=True), which cannot compile "
            "Horovod's collectives. Pass jit_compile=False to model.compile(), or leave "
            "jit_compile off the tf.function that calls the optimizer."
        )

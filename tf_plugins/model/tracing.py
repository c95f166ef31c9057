"""Questions about the function that TensorFlow is tracing."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any

import tensorflow as tf
from tensorflow.python.ops import control_flow_util

_numbers: Any = weakref.WeakKeyDictionary()  # outermost graph → kind → numbers given


def number_in_graph(kind: str) -> int:
    """Counts things of a kind in the function that is being traced, from 0; 0 when eager.

    The same on all ranks and in each retracing, which TensorFlow's unique names are not.
    """
    if tf.executing_eagerly():
        return 0
    graph = tf.compat.v1.get_default_graph()
    while getattr(graph, "outer_graph", None) is not None and _is_function(graph.outer_graph):
        graph = graph.outer_graph
    counts = _numbers.setdefault(graph, {})
    counts[kind] = counts.get(kind, -1) + 1
    return int(counts[kind])


def _is_function(graph: Any) -> bool:
    return bool(graph.building_function)


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


def reject_replicas() -> None:
    """Refuses tf.distribute strategies that make replicas in this process.

    Raises:
        ValueError: says what to do.
    """
    strategy = tf.distribute.get_strategy()
    if strategy.num_replicas_in_sync > 1 or isinstance(strategy, tf.distribute.MirroredStrategy):
        raise ValueError(
            f"{type(strategy).__name__} makes {strategy.num_replicas_in_sync} replicas in this "
            "process, which would each wait for the other ranks: start a process per device "
            "(horovodrun -np N), give each its own "
            "(tf.config.set_visible_devices(gpus[hvd.local_rank()], 'GPU')), and leave the "
            "strategy out."
        )


def if_true(
    condition: Any, then: Callable[[], Any], otherwise: Callable[[], Any] = lambda: None
) -> None:
    """Runs a block of side effects if a bool scalar is true when it comes to that.

    Args:
        condition: the scalar.
        then: the block.
        otherwise: runs if it is false.
    """
    if tf.executing_eagerly():
        (then if condition else otherwise)()
        return

    def branch(block: Callable[[], Any]) -> Callable[[], Any]:
        def run() -> Any:
            block()
            return tf.constant(block is then)

        return run

    tf.cond(condition, branch(then), branch(otherwise))


def while_true(condition: Callable[[], Any], then: Callable[[], Any]) -> None:
    """Runs a block of side effects as long as a bool scalar is true, computed anew each time."""
    if tf.executing_eagerly():
        while condition():
            then()
        return

    def body(count: Any) -> Any:
        then()
        return (count + 1,)

    tf.while_loop(lambda _: condition(), body, (tf.constant(0),), parallel_iterations=1)

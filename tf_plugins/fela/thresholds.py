"""A layer's threshold batch size: the one with which it has its best throughput (Figure 1)."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf

from trepak.tf_plugins.fela.cuts import crossing
from trepak.tf_plugins.fela.submodel import SubModel

TOLERANCE = 0.05  # below the best throughput, by which one still counts as it
MAX_BATCH = 4096
SECONDS = 1.0  # that a layer is measured for, beside one run with each batch that has begun
MEMORY = 1 << 30  # bytes that a batch's activations and their gradients may take
_RUNS = 3  # with each batch, of which the fastest counts
_FLAT = 2  # doublings without a gain after which no more are tried


def measure(node: Any) -> int:
    """Returns the threshold batch size of the layer that a node calls, on this machine.

    The layer runs forward and backward on zeros, on the first accelerator if there is one. Neither
    it nor its variables are changed.

    Raises:
        ValueError: its input has an open dimension beside the batch.
    """
    return saturating(_seconds_for(node))


def saturating(seconds_for: Callable[[int, float], float | None]) -> int:
    """Returns the smallest of the batches 1, 2, 4, … whose throughput is within 5% of the best.

    Args:
        seconds_for: a batch and the seconds left → the seconds that the batch takes, or None where
            it does not fit.
    """
    until = time.monotonic() + SECONDS
    rates: dict[int, float] = {}
    batch, flat, took = 1, 0, 0.0
    while batch <= MAX_BATCH and flat < _FLAT:
        left = until - time.monotonic()
        if rates and left < 2 * took:  # a batch of twice the size takes as much longer
            break
        seconds = seconds_for(batch, left)
        if seconds is None:
            break
        took = seconds
        best = max(rates.values(), default=0.0)
        rates[batch] = batch / max(seconds, 1e-9)
        flat = flat + 1 if rates[batch] * (1 - TOLERANCE) <= best else 0
        batch *= 2
    enough = (1 - TOLERANCE) * max(rates.values(), default=0.0)
    return min((one for one, rate in rates.items() if rate >= enough), default=1)


def _seconds_for(node: Any) -> Callable[[int, float], float | None]:
    tensors = [*node.input_tensors, *node.outputs]
    if any(size is None for tensor in tensors for size in tensor.shape[1:]):
        raise ValueError(
            f"layer {node.operation.name!r} has an open dimension beside the batch, so that no "
            "threshold batch size can be measured: give it a length, or give cuts by name."
        )
    step, inputs = _step(node)
    # Each activation has a gradient, and as much again is room for what the kernels work in.
    for_one = 3 * sum(np.prod(t.shape[1:]) * tf.as_dtype(t.dtype).size for t in tensors)

    def seconds_for(batch: int, left: float) -> float | None:
        if batch > 1 and batch * for_one > MEMORY:
            return None
        until = time.monotonic() + left
        took = float("inf")
        try:
            values = [tf.zeros([batch, *shape], dtype) for shape, dtype in inputs]
            step(*values)  # chooses kernels, which takes its time
            for _ in range(_RUNS):
                began = time.monotonic()
                for number in step(*values):
                    number.numpy()
                ended = time.monotonic()
                took = min(took, ended - began)
                if ended + took > until:
                    break
        except tf.errors.ResourceExhaustedError:
            return None
        return took

    return seconds_for


def _step(node: Any) -> tuple[Any, list[tuple[Any, str]]]:
    """Returns a pass forward and backward, and the shapes and dtypes that it takes."""
    inputs, outputs = ([crossing(t) for t in side] for side in (node.input_tensors, node.outputs))
    layer = SubModel([node], inputs, outputs, noises={})
    trainable, state = (
        [tf.identity(v.value) for v in side] for side in (layer.trainable, layer.state)
    )

    @tf.function(
        input_signature=[tf.TensorSpec([None, *into.shape], into.dtype) for into in layer.inputs]
    )
    def step(*inputs: Any) -> Any:
        with tf.GradientTape() as tape:
            floats = [one for one in inputs if one.dtype.is_floating]
            tape.watch([trainable, floats])
            outputs = layer.forward(trainable, state, inputs).outputs
        grads = tape.gradient(outputs, [*trainable, *floats])
        # One number of each, so that each is computed, and can be waited for.
        return [tf.reshape(one, [-1])[0] for one in grads if one is not None]

    return step, [(into.shape, into.dtype) for into in layer.inputs]

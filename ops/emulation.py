"""An accelerator's work, emulated: it takes its time, and no CPU."""

from __future__ import annotations

from typing import Any

from trepak.ops.loader import load

__all__ = ["emulated_compute"]


def emulated_compute(
    x: Any, milliseconds: Any, backward_milliseconds: Any = None, label: str = "emulated"
) -> Any:
    """Returns x after a time, in which the CPU is free: as if a GPU had worked on it.

    The pieces of a process run one after the other, as on one stream of a GPU. In a lab
    (`trepak lab run`) they are slowed as the rank is.

    Args:
        x: a tensor of any shape and dtype.
        milliseconds: time of the forward pass, a number or a float32 scalar.
        backward_milliseconds: time that x's gradient takes; by default twice the forward time, as
            in layers that need a product each for the gradients of their input and weights.
        label: what a timeline calls it.

    Returns:
        A tensor equal to x. Its gradient is passed on unchanged, after its own time.

    Raises:
        ImportError: the native library is missing.
        tf.errors.InvalidArgumentError: a time that is negative, an hour or more, or no scalar.
    """
    import tensorflow as tf

    forward = tf.convert_to_tensor(milliseconds, tf.float32)
    backward = 2.0 * forward if backward_milliseconds is None else backward_milliseconds

    @tf.custom_gradient
    def compute(value: Any) -> tuple[Any, Any]:
        def gradient(upstream: Any) -> Any:
            time = tf.convert_to_tensor(backward, tf.float32)
            return load().trepak_emulated_compute(upstream, time, label=f"{label} backward")

        return load().trepak_emulated_compute(value, forward, label=label), gradient

    return compute(tf.convert_to_tensor(x))

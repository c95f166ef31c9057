"""When each training step of this process computes, and when it synchronizes with others."""

from __future__ import annotations

from typing import Any, NamedTuple

from trepak.ops.loader import call, load

__all__ = ["StepTimes", "step_done", "step_ready", "take_step_times"]


class StepTimes(NamedTuple):
    """The times of one step, in seconds on this machine's steady clock.

    Attributes:
        step: its number in this process.
        begin: the end of the step before; of the first one, when it was ready.
        ready: its gradients were there, and this rank began to wait for others.
        done: its gradients were reduced, or handed over.
    """

    step: int
    begin: float
    ready: float
    done: float


def step_ready() -> Any:
    """Says that the gradients of this step, its control inputs, are computed.

    Where this rank is to be slower than others (`configure_injection`) it ends that much later.
    """
    return load().trepak_step_ready()


def step_done(at_own_pace: bool = False) -> Any:
    """Says that the gradients of this step, its control inputs, are reduced.

    Args:
        at_own_pace: they are but handed over; ranks don't end this step together.
    """
    return load().trepak_step_done(at_own_pace=at_own_pace)


def take_step_times() -> list[StepTimes]:
    """Returns the times of the steps since the last call; at most the latest 65,536."""
    return [
        StepTimes(step, *(t * 1e-9 for t in nanoseconds))
        for step, *nanoseconds in call("take_step_records")
    ]

"""Marks in each step where computing ends and where synchronizing ends.

Nothing is marked unless somebody looks: a monitor, a timeline, or a lab that slows this rank.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import tensorflow as tf

from trepak.horovod_ext import injection
from trepak.ops.loader import call, load

_enabled = False


class StepTimes(NamedTuple):
    """The times of one step, in seconds on this machine's steady clock.

    Attributes:
        step: its number in this process.
        begin: the end of the step before; of the first one, when it was ready.
        ready: its gradients were there, and this rank began to wait for others.
        done: its gradients were reduced, or handed over.
        at_own_pace: ranks did not end it together.
    """

    step: int
    begin: float
    ready: float
    done: float
    at_own_pace: bool = False


def enable() -> None:
    """Marks steps in what is traced from now on."""
    global _enabled
    _enabled = True


def mark_model(model: Any) -> None:
    """Marks the steps of a Keras model, also if `fit` has traced them without marks before.

    Args:
        model: the model; call it when `fit` has begun.
    """
    enable()
    traced = model.train_function
    if traced is not None and getattr(model, "_trepak_marked", None) is not traced:
        model.make_train_function(force=True)
        model._trepak_marked = model.train_function


def is_enabled() -> bool:
    """Tells whether steps are marked."""
    return _enabled or injection.is_wanted()


def mark_ready(grads: Sequence[Any]) -> tuple[list[Any], Any]:
    """Marks that the gradients are computed.

    Args:
        grads: tensors, IndexedSlices or None.

    Returns:
        The gradients, and the mark, for `mark_done`. A rank that is to be slower than it is has
        them later; to others a mark makes no difference, each gradient can be reduced at once.
    """
    if not is_enabled():
        return list(grads), None
    mark = _mark(_tensors(grads), load().trepak_step_ready)
    return (_behind(mark, grads) if injection.is_wanted() else list(grads)), mark


def mark_done(grads: Sequence[Any], ready: Any, at_own_pace: bool = False) -> list[Any]:
    """Marks that the gradients are reduced; returns them.

    Args:
        grads: tensors, IndexedSlices or None.
        ready: what `mark_ready` returned.
        at_own_pace: they are but handed over; ranks don't end this step together.
    """
    if not is_enabled():
        return list(grads)
    after = [*_tensors(grads), *([] if ready is None else [ready])]
    mark = _mark(after, lambda: load().trepak_step_done(at_own_pace=at_own_pace))
    return _behind(mark, grads)


def take_step_times() -> list[StepTimes]:
    """Returns the times of the steps since the last call; at most the latest 65,536."""
    return [
        StepTimes(step, begin * 1e-9, ready * 1e-9, done * 1e-9, at_own_pace)
        for step, begin, ready, done, at_own_pace in call("take_step_records")
    ]


def _tensors(grads: Sequence[Any]) -> list[Any]:
    return [getattr(grad, "values", grad) for grad in grads if grad is not None]


def _mark(after: list[Any], make: Callable[[], Any]) -> Any:
    """Returns a mark, an op, that waits for these and for the mark before, and that nothing awaits.

    TensorFlow runs a function's ops with effects one after the other: as one of them a mark would
    keep what follows it in the program from running beside the reduction. Marks alone have an
    order, since steps come one after the other.
    """
    graph: Any = None if tf.executing_eagerly() else tf.compat.v1.get_default_graph()
    before = getattr(graph, "_trepak_last_mark", None)
    with tf.control_dependencies([*after, *([] if before is None else [before])]):
        mark = make()
    automatic = getattr(graph, "experimental_acd_manager", None)
    if automatic is not None:
        automatic.run_independently(mark)
        graph._trepak_last_mark = mark
    return mark


def _behind(mark: Any, grads: Sequence[Any]) -> list[Any]:
    """Returns the gradients, there only after the mark, an op; None in eager execution."""
    if mark is None:
        return list(grads)
    with tf.control_dependencies([mark]):
        return [grad if grad is None else tf.identity(grad) for grad in grads]

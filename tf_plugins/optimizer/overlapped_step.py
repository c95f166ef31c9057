"""Moves the step's boundary: gradients are applied in the next step, each when it has come.

A step is then: apply what the step before has pushed, forward, backward, push. Every op carries the
handle of its variable, so that TensorFlow orders it among others of that variable alone: layer l's
update, and then its forward, wait for layer l's gradient and for no other.
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import warnings
import weakref
from collections.abc import Iterator, Sequence
from typing import Any

import keras
import tensorflow as tf

from trepak.horovod_ext import basics
from trepak.horovod_ext.failures import is_half_a_step
from trepak.horovod_ext.variables import outside_graph, tf_variable
from trepak.tf_plugins.model.tracing import if_true, reject_xla
from trepak.tf_plugins.optimizer.distribution import Distribution

# What Keras does per variable unless an optimizer class has a version of its own.
_PER_VARIABLE = (
    "apply",
    "_backend_apply_gradients",
    "_backend_update_step",
    "_apply_weight_decay",
    "_clip_gradients",
)


class OverlappedStep:
    """The two halves of a distributed optimizer's step, and what ties them together."""

    def __init__(self, distribution: Distribution) -> None:
        """Makes one for an optimizer whose reducer it uses."""
        self._distribution = distribution
        self._begun: Any = None  # where begin() was traced, until the step's gradients come
        self._rate: Any = None  # the learning rate of the step that was pushed
        self._finish: Any = None  # flush(), compiled
        self._pushed: tuple[Any, ...] = ()  # what knows which gradients are pending
        self._rank = 0  # of this process, which Horovod no longer knows when it has ended
        self._warned = False

    def obstacle(self, optimizer: Any) -> str | None:
        """Returns why an optimizer's variables can't be updated one by one; None if they can."""
        distribution = self._distribution
        classes = [cls for cls in type(optimizer).__mro__ if not hasattr(cls, "begin_step")]
        own = [name for name in _PER_VARIABLE if _is_own(classes, name)]
        reasons = {
            "it sums gradients over several passes": distribution.accumulator is not None
            or bool(getattr(optimizer, "gradient_accumulation_steps", None)),
            "the loss is scaled: all gradients must be finite": hasattr(
                optimizer, "inner_optimizer"
            ),
            "global_clipnorm needs all of them": bool(getattr(optimizer, "global_clipnorm", None)),
            "moving averages (use_ema) are of all variables": bool(
                getattr(optimizer, "use_ema", False)
            ),
            f"{type(optimizer).__name__} updates all variables at once ({', '.join(own)})": own,
        }
        return next((reason for reason, holds in reasons.items() if holds), None)

    def begin(self, optimizer: Any) -> None:
        """Applies what is pending, where that can be done one by one, and opens a step."""
        self._begun = None
        reject_xla()
        reason = self.obstacle(optimizer)
        if reason is not None and not self._warned:
            self._warned = True
            warnings.warn(
                f"{optimizer.name}: gradients are not applied one by one, so their transfer does "
                f"not overlap the next step: {reason}.",
                stacklevel=2,
            )
        if reason is not None or not self._distribution.reducer.takes_part():
            return
        if not optimizer.built:
            raise ValueError(
                "begin_step() comes before the optimizer knows its variables: call "
                "optimizer.build(model.trainable_variables) first."
            )
        variables = self._deferrable(optimizer._trainable_variables)
        if variables:
            self._distribution.reducer.agree_on(variables)
            self._apply_pending(optimizer, variables)
            self._begun = _place()

    def resume(self) -> None:
        """Has the transport run again where Horovod was shut down since; a collective call."""
        if self._rate is not None and self._distribution.reducer.takes_part():
            self._distribution.reducer.transport.start()
            self._watch()

    def takes(self, grads: Sequence[Any], variables: Sequence[Any]) -> bool:
        """Tells whether this step was opened, so that its gradients are to be pushed."""
        begun, self._begun = self._begun, None
        here = begun is not None and begun == _place()
        return here and any(map(self._distribution.reducer.is_carried, grads, variables))

    def push(self, optimizer: Any, grads: Sequence[Any], variables: Sequence[Any]) -> None:
        """Pushes the gradients of a step; those that can't travel so are applied at once."""
        reducer = self._distribution.reducer
        reducer.agree(grads, variables)
        pairs = list(zip(grads, variables, strict=True))
        pushed = [
            (grad, variable)
            for grad, variable in pairs
            if reducer.is_carried(grad, variable) and not reducer.is_local(variable)
        ]
        taken = {id(variable) for _, variable in pushed}
        rest = [pair for pair in pairs if id(pair[1]) not in taken]
        iterations = tf.identity(optimizer._iterations)
        rate = optimizer._get_current_learning_rate()
        self._rate_variable(optimizer).assign(rate)
        which = [variable for _, variable in pushed]
        reducer.push([grad for grad, _ in pushed], which)
        self._pushed = reducer.transport, reducer.keys_of(which), which
        self._watch()
        if any(grad is not None for grad, _ in rest):
            reduced = reducer.reduce([grad for grad, _ in rest], [v for _, v in rest])
            with self._applying(optimizer, iterations, rate):
                optimizer._apply_plainly(reduced, [variable for _, variable in rest])

    def flush(self, optimizer: Any) -> None:
        """Applies what is pending, now; does nothing if nothing is."""
        if self._rate is None:
            return  # nothing was ever pushed
        if self._finish is None:
            variables = self._deferrable(optimizer._trainable_variables)
            self._finish = tf.function(
                lambda: self._apply_pending(optimizer, variables), autograph=False
            )
        with tf.init_scope():
            self._finish()

    def warn_of_pending(self) -> None:
        """Warns of a step that nobody has applied; no collective call."""
        if not self._pushed:
            return
        transport, keys, variables = self._pushed
        reason = ""
        try:
            with tf.init_scope():
                if not tf.reduce_any(transport.pending(keys, variables)):
                    return
        except tf.errors.OpError as error:
            # Where ranks leave, training goes on from the last commit.
            if basics.is_elastic() or is_half_a_step(error.message):
                return
            reason = " They can't come any more: another rank has ended Horovod, or failed."
        warnings.warn(
            f"rank {self._rank}: the last step's gradients were never applied.{reason} Where no "
            "rank fails, call optimizer.flush() before the job or its Horovod ends on any of them.",
            stacklevel=2,
        )

    def _watch(self) -> None:
        """Has gradients that are pending when all ends not be lost silently."""
        self._rank = basics.rank()
        _watched.add(self)
        basics.before_shutdown(_warn_of_pending)  # again: before what carries them ends
        _warn_at_exit()

    def _deferrable(self, variables: Sequence[Any]) -> list[Any]:
        reducer = self._distribution.reducer
        shared = [variable for variable in variables if not reducer.is_local(variable)]
        return [v for v in shared if reducer.is_carried(tf_variable(v), v)]

    def _apply_pending(self, optimizer: Any, variables: Sequence[Any]) -> None:
        reducer = self._distribution.reducer
        pending = reducer.pending(variables)
        iterations = tf.identity(optimizer._iterations)
        rate = tf.identity(self._rate_variable(optimizer))
        with self._applying(optimizer, iterations, rate):
            for index, variable in enumerate(variables):
                if_true(pending[index], functools.partial(self._apply_one, optimizer, variable))
        if_true(tf.reduce_any(pending), lambda: optimizer._iterations.assign_add(1))

    def _apply_one(self, optimizer: Any, variable: Any) -> None:
        optimizer._apply_plainly([self._distribution.reducer.deliver(variable)], [variable])

    @contextlib.contextmanager
    def _applying(self, optimizer: Any, iterations: Any, rate: Any) -> Iterator[None]:
        """Has the optimizer see another step's number and learning rate, and not count it."""
        counter = optimizer._iterations
        distribution = self._distribution
        distribution.iterations, distribution.learning_rate = iterations, rate
        object.__setattr__(optimizer, "_iterations", _Uncounted())  # past Keras' own tracking
        try:
            yield
        finally:
            object.__setattr__(optimizer, "_iterations", counter)
            distribution.iterations = distribution.learning_rate = None

    def _rate_variable(self, optimizer: Any) -> Any:
        if self._rate is None:
            with outside_graph():
                rate = optimizer._get_current_learning_rate()
                self._rate = tf.Variable(rate, trainable=False, name="pushed_rate")
        return self._rate


class _Uncounted:
    """Stands in for an optimizer's counter of steps while one step is applied piece by piece."""

    def assign_add(self, value: Any) -> None:
        """Counts nothing."""


def _place() -> Any:
    """Returns where ops are made: the graph, or True for eager execution."""
    return True if tf.executing_eagerly() else tf.compat.v1.get_default_graph()


def _is_own(classes: Sequence[type], name: str) -> bool:
    """Tells whether one of these optimizer classes replaces a method of Keras' Optimizer."""
    method = next(vars(cls)[name] for cls in classes if name in vars(cls))
    return method is not getattr(keras.optimizers.Optimizer, name)


_watched: weakref.WeakSet[OverlappedStep] = weakref.WeakSet()


@functools.cache
def _warn_at_exit() -> None:
    atexit.register(_warn_of_pending)


def _warn_of_pending() -> None:
    for step in list(_watched):
        step.warn_of_pending()

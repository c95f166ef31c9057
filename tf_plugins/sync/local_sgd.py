"""Local SGD: ranks take steps of their own, and average what these have made of the model.

Lin et al., "Don't use large mini-batches, use local SGD", as Chicle does it (sections 2.2 and 5.1).
"""

from __future__ import annotations

import math
import numbers
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import keras
import tensorflow as tf

from trepak.horovod_ext import basics, exchange, step_probe
from trepak.horovod_ext.stragglers import RoundsOfRank
from trepak.horovod_ext.variables import outside_graph, tf_variable
from trepak.horovod_ext.weighted_means import weighted_means
from trepak.tf_plugins.model.tracing import if_true, reject_xla
from trepak.tf_plugins.optimizer.distribution import Distribution
from trepak.tf_plugins.sync.step import Step
from trepak.tf_plugins.sync.sync_model import SyncModel


@dataclass(frozen=True)
class LocalSGD(SyncModel):
    """Each rank takes H steps with its own gradients; then all ranks go on from the average.

    What is averaged is the weights and the optimizer's state (momentum, Adam's moments), each rank
    weighing as much as the samples that it has taken since the last time. With H = 1 that is bulk
    synchronous training with SGD, with or without momentum (Chicle, section 2.2: "lSGD degrades to
    mSGD").

    Attributes:
        H: steps between two averages, at least 1.
        scale_learning_rate: updates are made with the optimizer's learning rate times the square
            root of the number of ranks (section 5.1). The optimizer keeps the rate that it has.
    """

    H: int
    scale_learning_rate: bool = True

    def __post_init__(self) -> None:
        """Raises ValueError for a number of steps that is none, or a scaling that is no bool."""
        given: Any = self.H
        is_whole = isinstance(given, numbers.Integral) and not isinstance(given, bool)
        if not is_whole or self.H < 1:
            raise ValueError(f"H must be a whole number of steps, at least 1, got {self.H!r}.")
        if self.scale_learning_rate not in (True, False):
            raise ValueError(
                f"scale_learning_rate must be True or False, got {self.scale_learning_rate!r}."
            )

    def step_for(self, distribution: Distribution) -> LocalSGDStep:
        """Returns the steps of one optimizer; see `SyncModel.step_for`."""
        return LocalSGDStep(distribution, self)


class LocalSGDStep(Step):
    """What one distributed optimizer has of local SGD.

    Ranks count steps alike, so that each of them comes to an average in the same step; it is part
    of the step's graph. `drain` averages what has come since.
    """

    diverges = True
    counts_samples = True

    def __init__(self, distribution: Distribution, options: LocalSGD) -> None:
        """Makes it; see `Step`."""
        super().__init__(distribution)
        self._check_options("apply their own gradients", process_sets=True)
        self._options = options
        self._counters: _Counters | None = None  # made in the first step
        self._variables: list[Any] = []  # of the first step
        self._averaged: list[Any] = []  # of these, those with a gradient; and the optimizer's state

    @property
    def averages(self) -> int:
        """How many averages there have been; the same on all ranks."""
        return 0 if self._counters is None else int(self._counters.averages)

    @property
    def waited(self) -> float:
        """How many seconds this rank has spent in averages, waiting for others too."""
        return 0.0 if self._counters is None else float(self._counters.waited)

    @property
    def steps_to_average(self) -> int:
        """How many steps there are before ranks average again: from 1 to H."""
        since = 0 if self._counters is None else int(self._counters.steps_since())
        return self._options.H - since

    def begin(self, optimizer: Any) -> None:
        """Warns that nothing waits for the next step; see `Step.begin`."""
        self._warn_of_no_overlap(optimizer)

    def count(self, samples: Any) -> None:
        """Is told of a batch; see `Step.count`."""
        counters = self._made_counters()
        counters.samples.assign_add(tf.cast(samples, tf.int64))

    def apply(self, optimizer: Any, grads: Sequence[Any], variables: Sequence[Any]) -> None:
        """Applies this rank's gradients, and averages after every H-th step; see `Step.apply`.

        Raises:
            ValueError: variables that are local to a rank, or others than in the first step; a loss
                scale; several learning rates to scale; a step that XLA is to compile.
        """
        reducer = self._distribution.reducer
        if reducer.takes_part():
            self._start(optimizer, grads, variables)
        # Steps of some ranks alone would look to the others as if nobody had ever waited.
        marked = reducer.options.process_set.process_set_id == 0
        own, ready = step_probe.mark_ready(grads) if marked else (list(grads), None)
        with self._at_rate(self._rate(optimizer)):
            optimizer._apply_plainly(reducer.own(own), list(variables))
        counters = self._made_counters()
        counters.steps.assign_add(1)

        def end(after: Sequence[Any], at_own_pace: bool = False) -> None:
            if marked:
                step_probe.mark_done(after, ready, at_own_pace)

        if reducer.takes_part():
            due = counters.steps_since() >= self._options.H
            if_true(due, lambda: end(self._average()), lambda: end([], at_own_pace=True))
        else:
            end([])

    def drain(self, optimizer: Any) -> None:
        """Averages what ranks have made of the model since the last time; see `Step.drain`."""
        reducer = self._distribution.reducer
        if not basics.is_initialized() or not reducer.takes_part() or not exchange.is_possible():
            return
        # Also before its first step: a rank that has joined an elastic job meets others here.
        steps = 0 if self._counters is None else int(self._counters.steps_since())
        if any(exchange.gather(steps, "steps since the average", reducer.options.process_set)):
            with tf.init_scope():
                self._average()

    def restart(self) -> None:
        """Counts steps and samples anew; see `Step.restart`."""
        if self._counters is not None:
            self._counters.restart()

    def rounds(self) -> RoundsOfRank:
        """Returns what this rank has brought to the averages: a round is one of them."""
        size = self._distribution.reducer.options.process_set.size()
        return RoundsOfRank(self.averages, self.averages, size * self.averages, 0, 0)

    def statistics(self) -> dict[str, Any]:
        """Returns averages, and this rank's steps, samples and bytes that it has sent."""
        if self._counters is None:
            return {}
        counted = {name: int(getattr(self._counters, name)) for name in _Counters.NAMES}
        sent = sum(_sent_bytes(variable) for variable in self._averaged)
        return {**counted, "bytes": self.averages * sent}

    def _reject_scales(self, optimizer: Any) -> None:
        """Raises ValueError for a loss scale, and for rates that can't be scaled."""
        if hasattr(optimizer, "inner_optimizer"):
            raise ValueError(
                "with LocalSGD each rank would leave out other steps, by a loss scale of its own: "
                "use bfloat16 instead of float16 (mixed_bfloat16), or no LossScaleOptimizer."
            )
        several = isinstance(optimizer, keras.optimizers.MultiOptimizer)
        if several and self._options.scale_learning_rate:
            raise ValueError(
                "LocalSGD can't scale the learning rates inside a MultiOptimizer: give these the "
                "rates that you want, and LocalSGD scale_learning_rate=False."
            )

    def _made_counters(self) -> _Counters:
        if self._counters is None:
            self._counters = _Counters()
        return self._counters

    def _start(self, optimizer: Any, grads: Sequence[Any], variables: Sequence[Any]) -> None:
        """Checks that ranks can average; finds out, in the first step, what."""
        reject_xla()
        self._reject_scales(optimizer)
        self._reject_local(variables)
        if optimizer._keras_accumulates():
            self.reduce(grads, variables)  # says what to do
        self._distribution.reducer.agree(grads, variables)
        if self._variables:
            self._check_same(self._variables, variables)
            return
        self._variables = list(variables)
        # Those without a gradient are the same on all ranks, and keep their very bits.
        changed = [v for grad, v in zip(grads, variables, strict=True) if grad is not None]
        self._averaged = [tf_variable(v) for v in [*changed, *_state_of(optimizer)]]

    def _rate(self, optimizer: Any) -> Any:
        """Returns the learning rate of a step: the optimizer's, or its schedule's, scaled."""
        reducer = self._distribution.reducer
        if not self._options.scale_learning_rate or not reducer.takes_part():
            return None
        rate = keras.ops.convert_to_tensor(optimizer._get_current_learning_rate())
        size = basics.dynamic_size(reducer.options.process_set)  # of now, in an elastic job
        if isinstance(size, int):
            return rate * math.sqrt(size)
        return rate * tf.sqrt(tf.cast(size, rate.dtype))

    def _average(self) -> list[Any]:
        """Gives all ranks the mean of what they have; a collective call. Returns the means."""
        assert self._counters is not None
        reducer = self._distribution.reducer
        values = [variable.value() for variable in self._averaged]
        began = _second_after(values)
        means = weighted_means(
            values,
            self._counters.weight(),
            reducer.collective_name("local_sgd"),
            reducer.options.process_set,
        )
        self._counters.waited.assign_add(_second_after(means) - began)
        for variable, mean in zip(self._averaged, means, strict=True):
            variable.assign(mean)
        for variable in self._variables:  # Keras' step keeps these, too
            if getattr(variable, "constraint", None) is not None:
                variable.assign(variable.constraint(variable))
        self._counters.averages.assign_add(1)
        self._counters.restart()
        return means


class _Counters:
    """What a rank has counted: of all its steps, and of those since the last average.

    Attributes:
        averages: of all ranks.
        steps: of this rank.
        samples: of this rank, where it is told of them.
        waited: seconds that this rank has spent in averages.
    """

    NAMES = ("averages", "steps", "samples")

    def __init__(self) -> None:
        with outside_graph(), tf.device("CPU:0"):  # what is done next depends on them
            self.averages, self.steps, self.samples, self._steps_then, self._samples_then = (
                tf.Variable(0, trainable=False, dtype=tf.int64) for _ in range(5)
            )
            self.waited = tf.Variable(0.0, trainable=False, dtype=tf.float64)

    def steps_since(self) -> Any:
        """Returns the steps since the last average; an int64 scalar."""
        return self.steps - self._steps_then

    def weight(self) -> Any:
        """Returns how many samples these had; how many steps, if nobody has told of samples."""
        samples = self.samples - self._samples_then
        return tf.where(samples > 0, samples, self.steps_since())

    def restart(self) -> None:
        """Has both count from here."""
        self._steps_then.assign(self.steps)
        self._samples_then.assign(self.samples)


def _second_after(values: Sequence[Any]) -> Any:
    """Returns the second at which values are there, of a clock; a float64 scalar on the CPU."""
    with tf.device("CPU:0"):
        # A copy of what was computed last: an accelerator's work is over only when it has come.
        last = [tf.identity(tf.reshape(value, [-1])[:1]) for value in values[-1:]]
        with tf.control_dependencies([*values, *last]):
            return tf.timestamp()


def _state_of(optimizer: Any) -> list[Any]:
    """Returns an optimizer's state that its steps change: all numbers that are not whole."""
    parts = [optimizer, *getattr(optimizer, "_inner_optimizers", [])]
    rates = {id(getattr(part, "_learning_rate", None)) for part in parts}
    floating = [v for v in optimizer.variables if tf.as_dtype(v.dtype).is_floating]
    return [v for v in floating if id(v) not in rates]


def _sent_bytes(variable: Any) -> int:
    """Returns what a rank sends of a variable for one average; narrow ones travel as float32."""
    return int(variable.shape.num_elements() * max(4, variable.dtype.size))

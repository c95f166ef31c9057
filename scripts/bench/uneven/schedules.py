"""The schedule of an uneven rank: the samples of each step, and how long it is to take."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from trepak.ops import emulated_compute
from trepak.scripts.bench.uneven.cases import WORD_MS, Case
from trepak.scripts.bench.uneven.tasks import Task

_SCHEDULED = 4096  # steps, before their batches and times come again


@dataclass(frozen=True)
class Schedule:
    """A rank's steps in one training, one after another.

    Attributes:
        samples: numbers of training samples, [steps, batch].
        times: ms that each step is to take, [steps].
    """

    samples: Any
    times: Any


def schedule_of(case: Case, task_: Task, seed: int, rank: int, size: int) -> Schedule:
    """Returns a rank's schedule, the same for all methods: passes over its share of the samples."""
    batch = case.batch
    rng = np.random.default_rng([seed, rank])
    mine = np.arange(rank, len(task_.train[0]), size)
    passes = -(-_SCHEDULED * batch // len(mine))
    order = np.concatenate([rng.permutation(mine) for _ in range(passes)])
    samples = order[: _SCHEDULED * batch].reshape(_SCHEDULED, batch)
    if case.ranks[rank].sentences and task_.words is not None:
        on_top = case.ranks[rank].on_top(rng, _SCHEDULED)
        return Schedule(samples, WORD_MS * task_.words[samples].max(axis=1) + on_top)
    return Schedule(samples, case.ranks[rank].draw(rng, _SCHEDULED))


class Slowed(keras.layers.Layer):
    """Passes its input on late: a step takes as long as on an uneven cluster.

    Attributes:
        times: ms that training steps are to take, one after another.
    """

    def __init__(self, times: Any, own: float) -> None:
        """Makes it; `own`: ms that a step takes without this."""
        super().__init__()
        self.times = times
        self._delays = tf.constant(np.maximum(times - own, 0.0), tf.float32)
        self._steps = tf.Variable(0, trainable=False)

    def call(self, x: Any, training: bool = False) -> Any:
        """Returns x."""
        if not training:
            return x
        with tf.control_dependencies([x]):  # an epoch ends with a step that has no batch
            number = self._steps.assign_add(1) - 1
        return emulated_compute(x, self._delays[number % _SCHEDULED], 0.0, label="a step")

    def begin_anew(self) -> None:
        """Has the next step take what the first one was to take."""
        self._steps.assign(0)

    def drawn(self) -> Any:
        """Returns the seconds that the steps so far were to take, [steps]."""
        return self.times[np.arange(int(self._steps.numpy())) % _SCHEDULED] / 1000

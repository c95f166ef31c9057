"""RNA's gradients vanish as fast as the thesis proves (section 5.3, equations 5.3, 5.4 and 5.9).

f(x) = 1/2 sum l_i x_i^2, L its greatest curvature l_i; a rank's gradient has noise of variance
sigma^2. B is the number of gradients in a round's mean. It is read as the number of ranks, though
rounds have fewer: the bound is 2 sigma^2 / (B (eta + 1)), so that this is the hardest reading. (If
B counted the samples of n gradients that are means over s, B = n s, and sigma^2 would be a sample's
variance, s times as large: K, the bound and the steps would be the same.)

The proof's gamma multiplies the sum of a round's gradients (x_k+1 = x_k - gamma sum g, as in
algorithm 5, where gamma_k = gamma sum w). A user's learning rate multiplies the mean of all ranks',
and that of fewer at their share: it is n gamma.

The proof bounds an expectation, the tests see one run: what differs is small beside the margin.
"""

from __future__ import annotations

import math
import random
import time
from typing import Any

import keras
import numpy as np
import tensorflow as tf
from harness import case

import trepak
import trepak.keras as hvd
from trepak.horovod_ext import exchange

CURVATURES = np.linspace(0.25, 1.0, 16, dtype="float32")
START = np.full(16, math.sqrt(2 / CURVATURES.sum()), "float32")
L = float(CURVATURES.max())
DISTANCE = float(0.5 * (CURVATURES * START**2).sum())  # f(x_1) - f(x*)
VARIANCE = 1.0  # sigma^2


class Watched(keras.optimizers.SGD):
    """Notes the squared norm of f's gradient at x_k, just before it applies round k."""

    def __init__(self, rate: float, rounds: int) -> None:
        super().__init__(rate)
        self.norms = tf.Variable(tf.zeros(rounds + 1), trainable=False)  # the last one is spare
        self.applied = tf.Variable(0, trainable=False)

    def update_step(self, gradient: Any, variable: Any, learning_rate: Any) -> None:
        norm = tf.reduce_sum((CURVATURES * tf.convert_to_tensor(variable)) ** 2)
        at = tf.minimum(self.applied, self.norms.shape[0] - 1)
        self.norms.scatter_update(tf.IndexedSlices(norm, at))
        self.applied.assign_add(1)
        super().update_step(gradient, variable, learning_rate)


def noisy_gradient(x: tf.Tensor, seed: tf.Tensor) -> tf.Tensor:
    noise = tf.random.stateless_normal(x.shape, seed) * math.sqrt(VARIANCE / len(START))
    return CURVATURES * x + noise


def descend(eta: int, factor: float = 1.0) -> dict[str, float]:
    """Applies K rounds with `factor` times the proof's gamma, or rounds until x has gone astray."""
    gradients = hvd.size()  # B
    rounds = math.ceil(4 * gradients * L * DISTANCE / VARIANCE * (eta + 1) ** 2)  # 5.3
    gamma = factor * math.sqrt(DISTANCE / (gradients * L * rounds * VARIANCE))  # 5.4
    bound = 4 * math.sqrt(DISTANCE * L * VARIANCE / (gradients * rounds))  # 5.9
    x = keras.Variable(START)
    watched = Watched(hvd.size() * gamma, rounds)
    optimizer = hvd.DistributedOptimizer(watched, sync=trepak.RNA(staleness=eta, seed=eta))
    optimizer.build([x])
    compute = tf.function(lambda seed: noisy_gradient(tf.convert_to_tensor(x), seed))
    apply = tf.function(lambda gradient: optimizer.apply([gradient], [x]))
    compute(tf.constant([0, 0]))
    apply(tf.zeros(len(START)))  # x stays, while the functions are traced
    optimizer.flush()
    optimizer.applied.assign(0)
    before = optimizer._trepak.step.rounds()
    hvd.barrier()

    delays = random.Random(hvd.rank())
    step = 0
    while (applied := int(optimizer.applied)) < rounds:
        if optimizer.norms.numpy()[:applied].max(initial=0) > 1000 * bound:
            break
        gradient = compute(tf.constant([hvd.rank(), step]))
        time.sleep(delays.uniform(0, 0.003))  # other ranks apply rounds meanwhile
        apply(gradient)
        step += 1
    optimizer.flush()

    norms = optimizer.norms.numpy()[: min(int(optimizer.applied), rounds)]
    assert len({tuple(theirs) for theirs in exchange.gather(norms.tolist(), "norms")}) == 1
    after = optimizer._trepak.step.rounds()
    staleness = exchange.gather(after.staleness - before.staleness, "staleness")
    dropped = exchange.gather(after.dropped - before.dropped, "dropped gradients")
    return {
        "bound": bound,
        "mean": float(norms.mean()),
        "of_the_bound": float(norms.mean()) / bound,
        "rounds": len(norms),
        "contributors": (after.contributors - before.contributors) / (after.rounds - before.rounds),
        "staleness": sum(staleness) / (after.contributors - before.contributors),
        "dropped": sum(dropped),
    }


def stays_below_the_bound(eta: int) -> dict[str, float]:
    found = descend(eta)
    assert found["staleness"] > 0, found
    assert found["mean"] < found["bound"], found
    return found


@case
def gradients_vanish_as_proved_for_a_bound_of_1() -> Any:
    return stays_below_the_bound(1)


@case
def gradients_vanish_as_proved_for_a_bound_of_3() -> Any:
    return stays_below_the_bound(3)


@case
def gradients_vanish_as_proved_for_a_bound_of_7() -> Any:
    return stays_below_the_bound(7)


@case
def much_longer_steps_break_the_bound() -> Any:
    """What shows that the cases above could fail."""
    found = descend(eta=3, factor=20)
    assert found["mean"] > found["bound"], found
    return found

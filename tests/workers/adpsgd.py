"""AD-PSGD's promises, on real ranks: no step is lost, and replicas come together."""

from __future__ import annotations

from typing import Any

import keras
import numpy as np
import tensorflow as tf
from exactness import dense_model
from harness import case, counted
from rna import (
    check_equal_on_all_ranks,
    check_that_nobody_waits,
    constant_trainer,
    expect_the_same_variables_in_each_step,
)
from rna_epochs import fit_in_global_epochs

import trepak
import trepak.keras as hvd
from trepak.horovod_ext import exchange


@case
def no_step_is_lost() -> Any:
    """With plain SGD and constant gradients the mean of all replicas tells how many there were."""
    rate, steps = 0.25, 10 + 10 * hvd.rank()
    optimizer = hvd.DistributedOptimizer(keras.optimizers.SGD(rate), sync=trepak.ADPSGD(seed=1))
    variable, step = constant_trainer(optimizer, hvd.rank() + 1.0)
    variable.assign(np.full(5, 3.0, "float32"))
    for _ in range(steps):
        step()
    optimizer.flush()
    total = sum((10 + 10 * rank) * (rank + 1.0) for rank in range(hvd.size()))
    np.testing.assert_allclose(variable.numpy(), 3.0 - rate / hvd.size() * total, rtol=1e-5)
    counters = counted(optimizer)
    assert counters.steps == steps
    averagings = exchange.gather(counters.averagings, "averagings")
    active, passive = sum(averagings[::2]), sum(averagings[1::2])
    assert active == passive > 0, averagings
    return vars(counters)


@case
def weights_that_are_set_count_as_a_change() -> None:
    variable = keras.Variable(np.zeros(3, "float32"))
    optimizer = hvd.DistributedOptimizer(keras.optimizers.SGD(1.0), sync=trepak.ADPSGD())
    optimizer.build([variable])
    optimizer.apply([tf.ones(3)], [variable])
    optimizer.flush()
    variable.assign(np.full(3, 7.0, "float32"))
    optimizer.apply([tf.zeros(3)], [variable])
    optimizer.flush()
    np.testing.assert_allclose(variable.numpy(), 7.0, rtol=1e-5)
    variable.assign(np.full(3, -2.0, "float32"))
    optimizer.flush()  # as `fit` begins with one
    np.testing.assert_allclose(variable.numpy(), -2.0, rtol=1e-5)


@case
def it_trains_in_epochs_of_all_ranks_together() -> Any:
    keras.utils.set_random_seed(3)
    model = dense_model()
    optimizer = hvd.DistributedOptimizer(keras.optimizers.Adam(0.01), sync=trepak.ADPSGD(seed=4))
    steps, losses = fit_in_global_epochs(model, optimizer)
    check_equal_on_all_ranks(model)
    assert losses[-1] < losses[0], losses
    batches = 3 * 400 / 8
    assert abs(sum(steps) - batches) <= 6 * hvd.size(), steps
    return steps


@case
def nobody_waits_for_a_slow_rank() -> None:
    check_that_nobody_waits(trepak.ADPSGD())


@case
def wrong_use_is_explained() -> None:
    expect_the_same_variables_in_each_step(trepak.ADPSGD())

"""Variables of fewer bits than ranks exchange: what rounding takes away is not lost."""

from __future__ import annotations

from typing import Any

import keras
import numpy as np
import tensorflow as tf
from harness import case

import trepak
import trepak.keras as hvd
from trepak.tf_plugins.model.exchanged_values import ExchangedValues

GROUPS = [[0], [1]]
PROCESS_SETS = [hvd.ProcessSet(group) for group in GROUPS]


def check_that_parts_of_a_rounding_step_add_up(sync: Any) -> None:
    """Rank 0 makes changes of one rounding step of bfloat16, which count for a rank's share."""
    step_of_rounding = 2.0**-7  # from 1 to 2
    variable = keras.Variable(np.ones(3), dtype="bfloat16")
    optimizer = hvd.DistributedOptimizer(keras.optimizers.SGD(1.0), sync=sync)
    optimizer.build([variable])
    change = step_of_rounding if hvd.rank() == 0 else 0.0

    @tf.function
    def step() -> None:
        optimizer.apply([-change * tf.ones(3, tf.bfloat16)], [variable])

    for _ in range(4 * hvd.size()):
        step()
        optimizer.flush()  # which shows the rounded ones, and is not to take them for new
    values = tf.cast(variable.value, tf.float32).numpy()
    np.testing.assert_allclose(values, 1 + 4 * step_of_rounding, rtol=1e-6)


@case
def what_is_too_large_to_be_shown_is_kept() -> None:
    variable = keras.Variable(np.zeros(2), dtype="float16")
    values = ExchangedValues([variable])
    values.show([tf.constant([1.0, 70_000.0])])  # the largest of float16 is 65,504
    assert np.isinf(variable.numpy()[1])
    np.testing.assert_array_equal(values.read()[0].numpy(), [1.0, 70_000.0])
    variable.assign([2.0, 3.0])
    np.testing.assert_array_equal(values.read()[0].numpy(), [2.0, 3.0])


@case
def with_parameters_on_the_servers() -> None:
    for sync in (trepak.ElasticBSP(), trepak.SSP(), trepak.ASP()):
        check_that_parts_of_a_rounding_step_add_up(sync)


@case
def with_replicas_that_are_averaged() -> None:
    check_that_parts_of_a_rounding_step_add_up(trepak.ADPSGD())


@case
def with_groups_of_ranks() -> None:
    check_that_parts_of_a_rounding_step_add_up(trepak.RNA(groups=GROUPS, period=1))

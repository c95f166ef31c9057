"""AD-PSGD's promises, on real ranks: no step is lost, and replicas come together."""

from __future__ import annotations

from typing import Any

import keras
import numpy as np
from harness import case, counted
from rna import (
    constant_trainer,
)

import trepak
import trepak.keras as hvd
from trepak.horovod_ext import exchange


@case
def weights_that_are_set_between_steps_count_as_a_change() -> None:
    optimizer = hvd.DistributedOptimizer(keras.optimizers.SGD(1.0), sync=trepak.ADPSGD())
    variable, step = constant_trainer(optimizer, 1.0)
    step()
    optimizer.flush()
    variable.assign(np.full(5, 7.0, "float32"))
    step()
    optimizer.flush()
    np.testing.assert_allclose(variable.numpy(), 6.0, rtol=1e-5)


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

"""Groups of RNA, on real ranks: two of three ranks, and one for itself."""

from __future__ import annotations

import time
from typing import Any

import keras
import numpy as np
from exactness import dense_model
from harness import case, counted
from rna import (
    check_equal_on_all_ranks,
    check_that_nobody_waits,
    constant_trainer,
    expect,
)
from rna_epochs import check_steps_of_all_ranks, fit_in_global_epochs

import trepak
import trepak.keras as hvd
from trepak.horovod_ext import exchange

GROUPS = [[0, 1], [2]]
PROCESS_SETS = [hvd.ProcessSet(group) for group in GROUPS]


@case
def groups_move_the_parameters_by_their_shares() -> Any:
    rate = 0.25
    sync = trepak.RNA(groups=GROUPS, period=2, staleness=1000)
    optimizer = hvd.DistributedOptimizer(keras.optimizers.SGD(rate), sync=sync)
    variable, step = constant_trainer(optimizer, hvd.rank() + 1.0)
    for _ in range(2):
        for _ in range(30):
            step()
            time.sleep(0.002 * hvd.rank())
        optimizer.flush()
    counters = counted(optimizer)
    contributed = exchange.gather(counters.contributed, "contributions")
    # Within a group a round counts for its contributors' share; a group for its share of the ranks.
    total = sum(times * (rank + 1.0) for rank, times in enumerate(contributed))
    np.testing.assert_allclose(variable.numpy(), -rate / hvd.size() * total, rtol=1e-4)
    everyone = exchange.gather(variable.numpy().tobytes().hex(), "a variable")
    assert len(set(everyone)) == 1
    return contributed


@case
def schedules_go_on_by_the_share_of_all_ranks() -> Any:
    """Not by that of the group's, of which one is faster."""
    schedule = keras.optimizers.schedules.PolynomialDecay(1.0, 1000, 0.0)
    sync = trepak.RNA(groups=GROUPS, period=2, staleness=1000)
    optimizer = hvd.DistributedOptimizer(keras.optimizers.SGD(schedule), sync=sync)
    _, step = constant_trainer(optimizer, 1.0)
    for _ in range(2):
        for _ in range(10 if hvd.rank() == 2 else 40):
            step()
            time.sleep(0.005)
        optimizer.flush()
        rounds = optimizer._trepak.step
        contributed = exchange.gather(counted(optimizer).contributed, "contributions")
        progress = sum(contributed) / hvd.size()
        np.testing.assert_allclose(float(rounds._rate(optimizer)), 1 - int(progress + 1e-9) / 1000)
    return contributed


@case
def groups_train_together() -> Any:
    keras.utils.set_random_seed(3 + hvd.rank())  # they begin alike all the same
    model = dense_model()
    sync = trepak.RNA(groups=GROUPS, period=3, seed=4)
    optimizer = hvd.DistributedOptimizer(keras.optimizers.Adam(0.01), sync=sync)
    steps, losses = fit_in_global_epochs(model, optimizer)
    check_equal_on_all_ranks(model)
    assert losses[-1] < losses[0], losses
    check_steps_of_all_ranks(steps, slack=20)
    return steps


@case
def nobody_waits_for_the_slow_group() -> None:
    check_that_nobody_waits(trepak.RNA(groups=GROUPS, period=2))


@case
def wrong_groups_are_explained() -> None:
    for groups, message in (([[0, 1]], "in one of them"), ([[0, 1, 2], [2]], "in one of them")):
        sync = trepak.RNA(groups=groups)
        optimizer = hvd.DistributedOptimizer(keras.optimizers.SGD(1.0), sync=sync)
        _, step = constant_trainer(optimizer, 1.0)
        expect(message, step)
    optimizer = hvd.DistributedOptimizer(
        keras.optimizers.SGD(1.0), sync=trepak.RNA(groups=[[0], [1, 2]])
    )
    _, step = constant_trainer(optimizer, 1.0)
    expect("hvd.init(process_sets", step)

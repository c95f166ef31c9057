"""ElasticBSP's promises, and SSP's and ASP's, on real ranks."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

import keras
import numpy as np
import tensorflow as tf
from exactness import dense_model
from harness import case, counted, served
from rna import (
    STEPS,
    batch,
    check_equal_on_all_ranks,
    check_equal_on_all_ranks_of,
    constant_trainer,
    expect,
    trainer,
    weights,
)
from rna_epochs import fit_in_global_epochs

import trepak
import trepak.keras as hvd
from trepak.horovod_ext import exchange, parameter_server
from trepak.horovod_ext.elastic_bsp import StepOptions
from trepak.horovod_ext.elastic_bsp_simulation import record_of, simulate
from trepak.horovod_ext.straggler_verdict import verdict_of
from trepak.tf_plugins.sync.parameter_server_steps import recorded_steps

OUT = Path(os.environ["OUT"])
MODELS = (trepak.ElasticBSP(lookahead=4), trepak.SSP(staleness=2), trepak.ASP())


@case
def one_step_ahead_is_bsp_for_plain_sgd() -> None:
    results = []
    for sync in (trepak.BSP(), trepak.ElasticBSP(lookahead=1)):
        keras.utils.set_random_seed(3)
        model = dense_model()
        optimizer = hvd.DistributedOptimizer(keras.optimizers.SGD(0.05), sync=sync)
        step = trainer(model, optimizer)
        for number in range(STEPS):
            step(*batch(number))
        check_equal_on_all_ranks(model)  # after each barrier, not just after a flush
        optimizer.flush()
        results.append(weights(model))
    for ours, theirs in zip(*results, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-6)


@case
def no_step_is_lost() -> None:
    for sync in MODELS:
        _check_that_no_step_is_lost(sync)
    _check_that_no_step_is_lost(MODELS[0], passes=2)
    parameter_server.stop()
    for sync in MODELS:
        _check_that_no_step_is_lost(sync, transport=trepak.Geryon())
    parameter_server.stop()


def _check_that_no_step_is_lost(sync: Any, passes: int = 1, transport: Any = None) -> None:
    """With plain SGD and constant gradients the weights tell how many steps there were."""
    rate = 0.25
    optimizer = hvd.DistributedOptimizer(
        keras.optimizers.SGD(rate),
        sync=sync,
        backward_passes_per_step=passes,
        transport=transport,
    )
    variable, step = constant_trainer(optimizer, hvd.rank() + 1.0)
    total = 0.0
    for _ in range(2):
        steps = 6 + 6 * hvd.rank()
        for _ in range(steps):
            step()
        optimizer.flush()
        total += sum((6 + 6 * rank) * (rank + 1.0) for rank in range(hvd.size()))
        np.testing.assert_allclose(variable.numpy(), -rate / hvd.size() * total, rtol=1e-5)
        check_equal_on_all_ranks_of(variable)
    assert counted(optimizer).steps * passes == 2 * steps


@case
def barriers_come_within_the_lookahead() -> Any:
    """Rank 0 is twice as fast as the others: bulk synchronous, it would wait half of its time.

    How often they meet, and how long they wait, depends on how even the machine's times are: one
    stall of a second is ten steps. `elastic_bsp_scheduler_test` shows on a clock of its own that
    barriers come where waiting is least, and what the scheduler foresees. That ranks meet within
    the lookahead, with the same weights, depends on no time.
    """
    sync = trepak.ElasticBSP()
    optimizer = hvd.DistributedOptimizer(keras.optimizers.SGD(0.1), sync=sync)
    variable, step = constant_trainer(optimizer, 1.0)
    is_fast = hvd.rank() == 0
    at_barriers = {}
    for _ in range(42 if is_fast else 22):
        time.sleep(0.05 if is_fast else 0.1)
        step()
        counters = counted(optimizer)
        at_barriers.setdefault(str(counters.barriers), variable.numpy().tolist())
    optimizer.flush()
    of_all = exchange.gather(at_barriers, "weights after each barrier")
    assert counters.barriers >= (42 if is_fast else 22) // sync.lookahead, counters
    for barrier in set.intersection(*map(set, of_all)) - {"0"}:
        assert all(theirs[barrier] == at_barriers[barrier] for theirs in of_all), (barrier, of_all)
    planned = counted(optimizer, "planned_")
    if hvd.rank() == 0:
        assert planned.steps == 42 + 22 * (hvd.size() - 1)
        assert planned.taken_out == 0
        assert 0 < planned.predictions < planned.steps, planned
        assert np.isfinite(planned.error), planned
        recorded = recorded_steps(optimizer)
        for rank, slept in enumerate([0.05] + [0.1] * (hvd.size() - 1)):
            computing, communication = np.median(recorded[recorded[:, 0] == rank, 2:], axis=0)
            assert slept <= computing < 2 * slept + 0.05, (rank, computing)
            assert 0 < communication < computing, (rank, communication)
    else:
        assert planned.steps == 0
    return vars(planned) | vars(counters) | {"clock": time.monotonic()}


@case
def it_trains_in_epochs_of_all_ranks_together() -> Any:
    taken = []
    for sync in (MODELS[0], MODELS[2]):  # contract.py has them all
        keras.utils.set_random_seed(3)
        model = dense_model()
        optimizer = hvd.DistributedOptimizer(keras.optimizers.Adam(0.01), sync=sync)
        monitor = trepak.callbacks.StragglerMonitor(every=1, verbose=int(hvd.rank() == 0))
        callbacks = [monitor, keras.callbacks.EarlyStopping(patience=50)]
        saved = OUT / "checkpoint.weights.h5"
        if hvd.rank() == 0:  # as in a job without trepak's pace
            callbacks.append(keras.callbacks.ModelCheckpoint(saved, save_weights_only=True))
        steps, losses = fit_in_global_epochs(model, optimizer, callbacks)
        check_equal_on_all_ranks(model)
        if hvd.rank() == 0:
            ended = weights(model)
            model.load_weights(saved)
            for ours, theirs in zip(ended, weights(model), strict=True):
                np.testing.assert_array_equal(ours, theirs)
        assert losses[-1] < losses[0], losses
        assert abs(sum(steps) - 3 * 400 / 8) <= 6 * hvd.size(), steps
        counters = counted(optimizer)
        mine = monitor.table.reports()[hvd.rank()]
        assert mine.rounds == counters.barriers and mine.steps <= counters.steps
        assert 0 < mine.waited_seconds <= counters.waiting_seconds
        assert "waited longest for others" in verdict_of(monitor.table)
        if isinstance(sync, trepak.ElasticBSP):
            assert "were foreseen to" in verdict_of(monitor.table)
        _check_that_it_can_be_simulated(optimizer, sync)
        taken.append(steps)
    return taken


def _check_that_it_can_be_simulated(optimizer: Any, sync: Any) -> None:
    """How long ranks would wait depends on how even the recorded times are.

    That a longer lookahead has them wait less, test_elastic_bsp_simulation.py shows on given times.
    """
    recorded = recorded_steps(optimizer)
    if hvd.rank() != 0:
        assert recorded.shape == (0, 4)
        return
    record = record_of(recorded, barriers=isinstance(sync, trepak.ElasticBSP))
    for lookahead in (1, 15):
        found = simulate(record, StepOptions("elastic_bsp", lookahead=lookahead), steps=300)
        assert found.steps.sum() == 300, found
        assert np.isfinite(found.waiting).all() and (found.waiting >= 0).all(), found


@case
def steps_that_are_not_finite_are_left_out() -> None:
    """And forgotten: what a momentum has once taken in would come with every later step."""
    variable = keras.Variable(np.zeros(3, "float32"))
    optimizer = hvd.DistributedOptimizer(
        keras.optimizers.SGD(1.0, momentum=0.5), sync=trepak.ElasticBSP(lookahead=1)
    )
    optimizer.build([variable])

    @tf.function
    def step(value: Any) -> None:
        optimizer.apply([tf.fill([3], value)], [variable])

    others = (hvd.size() - 1) / hvd.size()
    step(tf.constant(float("nan") if hvd.rank() == 0 else 1.0))
    np.testing.assert_allclose(variable.numpy(), -others, rtol=1e-5)
    step(tf.constant(1.0))
    np.testing.assert_allclose(variable.numpy(), -others - 1.5 * others - 1 / hvd.size(), rtol=1e-5)
    optimizer.flush()
    counters = counted(optimizer)
    assert counters.not_finite == (1 if hvd.rank() == 0 else 0)


@case
def parameters_travel_at_the_priorities_of_their_layers() -> None:
    parameter_server.stop()
    keras.utils.set_random_seed(3)
    model = keras.Sequential(
        [keras.Input((8, 8, 1)), keras.layers.Conv2D(4, 3), keras.layers.Flatten()]
    )
    model.add(keras.layers.Dense(100))
    optimizer = hvd.DistributedOptimizer(
        keras.optimizers.SGD(0.05), sync=trepak.ElasticBSP(lookahead=1), transport=trepak.Geryon()
    )
    step = trainer(model, optimizer)
    x, y = tf.random.normal((4, 8, 8, 1)), tf.random.normal((4, 100))
    step(x, y)
    before = served().bytes_by_priority
    step(x, y)
    after = served().bytes_by_priority
    sent = [now - then for now, then in zip(after, before, strict=True)]
    assert 0 < 3 * sent[0] < sent[1], sent  # the Dense layer's are the many
    check_equal_on_all_ranks(model)
    optimizer.flush()
    parameter_server.stop()


@case
def wrong_use_is_explained() -> None:
    for lookahead in (0, 2.5, 2**32):
        expect(
            "lookahead must be a whole number from 1 to 10000",
            lambda lookahead=lookahead: trepak.ElasticBSP(lookahead=lookahead),
        )
    expect("prediction must be one of last, mean", lambda: trepak.ElasticBSP(prediction="best"))
    expect("staleness must be a whole number from 0", lambda: trepak.SSP(staleness=-1))
    variable = keras.Variable(np.zeros(2, "float32"))
    optimizer = hvd.DistributedOptimizer(keras.optimizers.SGD(1.0), sync=trepak.ASP())
    expect(
        "no gradients of one step",
        lambda: optimizer.compute_gradients(lambda: tf.reduce_sum(variable.value**2), [variable]),
    )
    model = dense_model()
    model.compile(optimizer, "mse")
    expect("overlap() is for sync=BSP()", lambda: trepak.overlap(model))
    model.add(keras.layers.Dense(2, kernel_constraint="non_neg"))
    kernel = model.layers[-1].kernel
    optimizer.build([kernel])
    expect("constraint NonNeg", lambda: optimizer.apply([tf.ones(kernel.shape)], [kernel]))
    expect("with sync= ElasticBSP, SSP or ASP", lambda: recorded_steps(keras.optimizers.SGD()))
    if hvd.size() > 1:
        other = trepak.ElasticBSP(lookahead=min(2, 1 + hvd.rank()))
        optimizer = hvd.DistributedOptimizer(keras.optimizers.SGD(1.0), sync=other)
        optimizer.build([variable])
        expect(
            "lookahead=2, prediction='mean') on rank",
            lambda: optimizer.apply([tf.ones(2)], [variable]),
        )

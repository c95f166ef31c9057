"""What every sync model promises, whatever else it does: one line for each system."""

from __future__ import annotations

import functools
import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import harness
import keras
import numpy as np
from exactness import dense_model
from harness import case
from migrating import restart_for_others
from rna import (
    batch,
    check_equal_on_all_ranks,
    check_equal_on_all_ranks_of,
    check_that_nobody_waits,
    constant_trainer,
    expect,
    expect_the_same_variables_in_each_step,
    weights,
)
from rna_epochs import check_steps_of_all_ranks, fit_in_global_epochs

import trepak
import trepak.keras as hvd
from trepak.horovod_ext import exchange
from trepak.horovod_ext.stragglers import RoundsOfRank
from trepak.tf_plugins.model.distributed_models import asynchronous_steps


class System(NamedTuple):
    """A sync model, as it is to be tested.

    Attributes:
        make: makes it from options.
        wrong: an option that it refuses, and what the error says; None: it has no options.
        steps: the counters that add up to the steps of a rank; none: it counts nothing.
        waits: whether ranks wait for a slow one.
        own_pace: whether each rank takes as many steps as it can.
    """

    make: Callable[..., Any]
    wrong: tuple[dict[str, Any], str] | None
    steps: tuple[str, ...] = ("steps",)
    waits: bool = True
    own_pace: bool = True


ROUNDS = ("gradients", "dropped", "not_finite")
SYSTEMS = {
    "BSP": System(trepak.BSP, None, (), own_pace=False),
    "LocalSGD": System(
        functools.partial(trepak.LocalSGD, H=2, scale_learning_rate=False),
        ({"H": 0}, "H must be"),
        own_pace=False,
    ),
    "RNA": System(trepak.RNA, ({"on_miss": "later"}, "on_miss must be"), ROUNDS, waits=False),
    "EagerSGD": System(trepak.EagerSGD, ({"mode": "all"}, "mode must be one of"), ROUNDS),
    "ADPSGD": System(trepak.ADPSGD, None, waits=False),
    "ElasticBSP": System(trepak.ElasticBSP, ({"lookahead": 0}, "lookahead must be")),
    "SSP": System(trepak.SSP, ({"staleness": -1}, "staleness must be")),
    "ASP": System(trepak.ASP, None, waits=False),
}


def promise(check: Callable[[System], Any]) -> Callable[[System], Any]:
    """Registers what each of the systems is checked for."""
    for name, system in SYSTEMS.items():
        one = harness.Case(functools.partial(check, system))
        harness.add(__name__, f"{name}-{check.__name__}", one)
    return check


@promise
def trains_in_epochs_of_all_ranks_together(system: System) -> Any:
    keras.utils.set_random_seed(3)
    model = dense_model()
    optimizer = hvd.DistributedOptimizer(keras.optimizers.Adam(0.01), sync=system.make())
    assert not any(np.sum(value) for value in optimizer.statistics().values())
    before = weights(model)
    monitor = hvd.callbacks.StragglerMonitor(verbose=0)
    steps, losses = fit_in_global_epochs(model, optimizer, [monitor], system.own_pace)
    check_equal_on_all_ranks(model)
    assert all(np.any(now != then) for now, then in zip(weights(model), before, strict=True))
    assert np.isfinite(losses).all() and losses[-1] < losses[0], losses
    check_steps_of_all_ranks(steps)
    if system.waits:
        assert sum(steps) <= 3 * 400 / 8 + 6 * hvd.size(), steps
    counted = optimizer.statistics()
    assert bool(counted) == bool(system.steps), counted
    if system.steps:
        assert sum(counted[name] for name in system.steps) == steps[hvd.rank()], counted
    if system.own_pace:
        _check_what_the_monitor_shows(monitor, asynchronous_steps(model)[0].rounds())
    _check_that_it_is_a_plain_model(model)
    return counted


def _check_what_the_monitor_shows(monitor: Any, mine: RoundsOfRank) -> None:
    shown = monitor.table.rounds_of(hvd.rank())
    assert (shown.rounds, shown.contributed) == (mine.rounds, mine.contributed), (shown, mine)


def _check_that_it_is_a_plain_model(model: Any) -> None:
    """It evaluates, predicts, and is the same when it has been saved and loaded."""
    x, y = batch(0)
    assert np.isfinite(model.evaluate(x, y, verbose=0))
    everyone = exchange.gather(model.predict(x[:1] * 0, verbose=0).tolist(), "predictions")
    assert all(theirs == everyone[0] for theirs in everyone), everyone
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.keras"
        model.save(path)
        loaded = keras.saving.load_model(path)
    for ours, theirs in zip(weights(model), weights(loaded), strict=True):
        np.testing.assert_array_equal(ours, theirs)
    assert int(loaded.optimizer.iterations) == int(model.optimizer.iterations)


@promise
def weights_that_are_set_count_as_a_change(system: System) -> None:
    optimizer = hvd.DistributedOptimizer(keras.optimizers.SGD(1.0), sync=system.make())
    variable, step = constant_trainer(optimizer, 1.0)
    step()
    optimizer.flush()
    for value in (7.0, -2.0):
        variable.assign(np.full(5, value, "float32"))
        optimizer.flush()  # as `fit` begins with one
        np.testing.assert_allclose(variable.numpy(), value, rtol=1e-5)
    step()
    optimizer.flush()
    check_equal_on_all_ranks_of(variable)
    assert -3.0 - 1e-5 <= variable.numpy()[0] < -2.0, variable.numpy()


@promise
def steps_are_of_the_same_variables(system: System) -> None:
    if system.steps:
        expect_the_same_variables_in_each_step(system.make())


@promise
def wrong_options_are_named(system: System) -> None:
    if system.wrong:
        options, message = system.wrong
        expect(message, lambda: system.make(**options))
    expect_a_type_error(lambda: system.make(no_such_option=1))


def expect_a_type_error(call: Callable[[], Any]) -> None:
    try:
        call()
    except TypeError as error:
        assert "no_such_option" in str(error), error
    else:
        raise AssertionError("an option that there is not was taken")


@promise
def elastic_jobs_are_refused(system: System) -> None:
    """By those whose ranks must stay."""
    if not system.own_pace:
        return
    optimizer = hvd.DistributedOptimizer(keras.optimizers.SGD(1.0), sync=system.make())
    _, step = constant_trainer(optimizer, 1.0)
    os.environ["HOROVOD_ELASTIC"] = "1"
    try:
        expect("needs ranks that stay", step)
    finally:
        del os.environ["HOROVOD_ELASTIC"]


@promise
def nobody_waits_for_a_slow_rank(system: System) -> None:
    if not system.waits:
        sync = system.make(choices=hvd.size()) if system.make is trepak.RNA else system.make()
        check_that_nobody_waits(sync)


@case
def after_shutdown_and_init_all_begin_anew() -> None:
    if "HOROVOD_GLOO_RENDEZVOUS_ADDR" in os.environ:
        return  # Gloo's ranks would look for each other where they were the first time
    trained = [_trained(system) for system in SYSTEMS.values()]
    restart_for_others()
    for system, step in zip(SYSTEMS.values(), trained, strict=True):
        if system.own_pace:  # what has been traced was of a job that is over
            try:
                step()
            except Exception as error:
                assert "Horovod was shut down" in str(error), error
            else:
                raise AssertionError(f"{system} goes on with what is closed")
        else:
            step()
    for system in SYSTEMS.values():
        _trained(system)


def _trained(system: System) -> Callable[[], None]:
    """Takes a step; returns what takes another one."""
    optimizer = hvd.DistributedOptimizer(keras.optimizers.SGD(1.0), sync=system.make())
    variable, step = constant_trainer(optimizer, 1.0)
    step()
    optimizer.flush()
    assert variable.numpy()[0] < 0
    check_equal_on_all_ranks_of(variable)
    return step  # type: ignore[no-any-return]

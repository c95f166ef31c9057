"""ElasticBSP's ranks that begin late, or stand still: longer than the others are patient, 5 s.

How long the others wait depends on clocks and flows, and not on what has started the ranks.
"""

from __future__ import annotations

import os
import signal
import subprocess
import time
from typing import Any

import keras
import numpy as np
from harness import case, counted
from rna import check_equal_on_all_ranks_of, constant_trainer

import trepak
import trepak.keras as hvd
from trepak.horovod_ext import exchange, parameter_server


@case
def others_wait_for_a_rank_that_begins_late() -> None:
    optimizer = hvd.DistributedOptimizer(keras.optimizers.SGD(0.1), sync=trepak.ElasticBSP())
    variable, step = constant_trainer(optimizer, 1.0)
    step()
    is_late = hvd.rank() == hvd.size() - 1
    time.sleep(7.0 if is_late else 0.0)  # others are patient for 5 s, with ranks that have begun
    for _ in range(3):
        step()
    counters = counted(optimizer)
    optimizer.flush()
    np.testing.assert_allclose(variable.numpy(), -0.4, rtol=1e-5)
    if hvd.rank() == 0:
        assert counted(optimizer, "planned_").taken_out == 0
        assert counters.waiting_seconds > 6


@case
def others_go_on_without_a_rank_that_stands_still_in_a_superstep() -> Any:
    return _check_that_others_go_on(0.02, 0.05, lookahead=15)


@case
def others_go_on_without_a_rank_that_stands_still_at_a_barrier() -> Any:
    return _check_that_others_go_on(0.3, 0.02, lookahead=1)  # they compute, and it waits for them


def _check_that_others_go_on(others_seconds: float, its_seconds: float, lookahead: int) -> Any:
    """The last rank, which has no server, stands still until rank 0 has gone on without it."""
    parameter_server.stop()  # those of other cases
    optimizer = hvd.DistributedOptimizer(
        keras.optimizers.SGD(0.1),
        sync=trepak.ElasticBSP(lookahead),
        transport=trepak.ParameterServers(servers=[0]),
    )
    variable, step = constant_trainer(optimizer, 1.0)
    its_process = exchange.gather(os.getpid(), "process")[-1]
    stands_still = hvd.rank() == hvd.size() - 1
    steps, without_it = 0, 0
    deadline = time.monotonic() + 60
    while steps < 20 or (hvd.rank() == 0 and without_it < 5 and time.monotonic() < deadline):
        if stands_still and steps == 5:
            _stand_still(60)
        time.sleep(its_seconds if stands_still else others_seconds)
        step()
        steps += 1
        if hvd.rank() == 0 and counted(optimizer, "planned_").taken_out == 1:
            without_it += 1
            if without_it == 5:
                os.kill(its_process, signal.SIGCONT)
    optimizer.flush()
    check_equal_on_all_ranks_of(variable)
    everyone = exchange.gather(steps, "steps")
    total = sum(everyone)
    np.testing.assert_allclose(variable.numpy(), -0.1 / hvd.size() * total, rtol=1e-4)
    if hvd.rank() == 0:
        assert without_it >= 5, everyone
        assert counted(optimizer, "planned_").taken_out == 1
        assert optimizer._trepak.step.rounds().taken_out == 1  # which the monitor shows
    parameter_server.stop()
    return everyone


@case
def nothing_is_lost_when_a_rank_with_a_server_stands_still() -> None:
    """Nobody can go on without its parameters, and nobody fails: it comes back in time."""
    optimizer = hvd.DistributedOptimizer(keras.optimizers.SGD(0.1), sync=trepak.ElasticBSP(4))
    variable, step = constant_trainer(optimizer, 1.0)
    began = time.monotonic()
    for number in range(40):
        if number == 5 and hvd.rank() == hvd.size() - 1:
            _stand_still(6)  # longer than others are patient
        time.sleep(0.02)
        step()
    optimizer.flush()
    assert time.monotonic() > began + 6
    np.testing.assert_allclose(variable.numpy(), -4.0, rtol=1e-5)


def _stand_still(seconds: float) -> None:
    """Stops this process in a moment, for so long."""
    me = os.getpid()
    script = f"sleep 0.1; kill -STOP {me}; sleep {seconds}; kill -CONT {me}"
    subprocess.Popen(["sh", "-c", script], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

"""Trainings of ElasticBSP's cases in one process (scripts/bench/uneven_accuracies.py)."""

from __future__ import annotations

import dataclasses
from typing import Any

import keras
import numpy as np
import pytest

from trepak.scripts.bench.elastic_bsp_cases import COMPARED, ELASTIC, cases
from trepak.scripts.bench.uneven.methods import ASP, HOROVOD, SSP
from trepak.scripts.bench.uneven.schedules import schedule_of
from trepak.scripts.bench.uneven.tasks import task
from trepak.scripts.bench.uneven_accuracies import Cluster, compare, epochs_of, events_of
from trepak.tf_plugins.data.dynamic_sharding import shuffled

_CASE = dataclasses.replace(cases()[0], epochs=2, epoch_steps=60)
_SIZE = len(_CASE.ranks)


def _epochs(method: str) -> list[Any]:
    given = task(_CASE.task)
    schedules = [schedule_of(_CASE, given, 0, rank, _SIZE) for rank in range(_SIZE)]
    return list(epochs_of(_CASE, method, schedules))


@pytest.mark.parametrize("method", COMPARED)
def test_epochs_hold_all_steps_and_begin_when_all_have_ended(method: str) -> None:
    first, second = _epochs(method)
    assert 240 <= len(first) < 240 + _SIZE
    assert 480 <= len(first) + len(second) < 480 + _SIZE
    for steps in (first, second):
        assert (np.diff(steps[:, 2]) >= 0).all()
    assert second[:, 1].min() == first[-1, 2]


def test_ranks_wait_as_their_way_says() -> None:
    def most_ahead(method: str) -> int:
        """Returns by how many steps one is ahead since all have last begun one together."""
        taken, ahead = np.zeros(_SIZE, int), 0
        for begin, ends in events_of(_epochs(method)[0]):
            taken = taken * (len(begin) < _SIZE)
            taken[ends] += 1
            ahead = max(ahead, taken.max() - taken.min())
        return ahead

    assert most_ahead(HOROVOD) == 1
    assert 1 < most_ahead(ELASTIC[0]) <= 15
    assert most_ahead(ASP) > 25

    ended = np.eye(_SIZE)[_epochs(SSP)[0][:, 0].astype(int)].cumsum(axis=0)
    assert (ended.max(axis=1) - ended.min(axis=1)).max() == 4


def test_each_takes_its_step_from_what_was_there_when_it_began() -> None:
    # All begin an epoch together, and leave barriers so.
    for method, least, most in ((HOROVOD, 60, 60), (ELASTIC[0], 5, 30), (ASP, 1, 1)):
        under_way: set[int] = set()
        together = 0
        for begin, ends in events_of(_epochs(method)[0]):
            assert under_way.isdisjoint(begin)
            under_way.update(begin)
            under_way.remove(ends)
            together += sorted(begin) == [*range(_SIZE)]
        assert not under_way
        assert least <= together <= most, method


@pytest.mark.parametrize("shards", [False, True], ids=["one order", "shards"])
def test_a_way_that_waits_trains_as_one_process(shards: bool) -> None:
    case = dataclasses.replace(
        cases()[0], epochs=1, decayed_epochs=0, epoch_steps=5, dynamic_sharding=not shards
    )
    given = task(case.task)
    keras.utils.set_random_seed(3000)
    model = given.build()
    model.compile(
        keras.optimizers.SGD(case.rate, momentum=0.9),
        keras.losses.SparseCategoricalCrossentropy(from_logits=True),
    )
    schedules = [schedule_of(case, given, 3, rank, 4) for rank in range(4)]
    for step in range(5):
        chosen = shuffled(16 * step, 16, len(given.train[0]), seed=3).numpy()
        if shards:
            chosen = np.concatenate([schedule.samples[step] for schedule in schedules])
        model.train_on_batch(given.train[0][chosen], given.train[1][chosen])
    wanted = np.concatenate([weights.ravel() for weights in model.get_weights()])
    cluster = Cluster(case)
    for method, most in ((HOROVOD, 1e-5), (ASP, 1.0)):
        cluster.accuracy(method, 3)
        found = np.concatenate([weights.ravel() for weights in cluster.model.get_weights()])
        assert np.abs(found - wanted).max() < most, method
    assert np.abs(found - wanted).max() > 1e-3


def test_comparison_says_how_well_trials_can_tell() -> None:
    rng = np.random.default_rng(1)
    alike = {method: [*(0.85 + 0.005 * rng.normal(size=30))] for method in COMPARED}
    lines = list(compare(alike, [3]))
    assert len(lines) == 4 and lines[0].startswith(f"{HOROVOD} is ")
    above = {method: [0.86 - 0.01 * (method == ELASTIC[0])] * 30 for method in COMPARED}
    *of_ways, draws = compare(above, [3])
    assert all("is 1.00 points above elastic-bsp 15 (standard error 0.00)" in x for x in of_ways)
    assert draws == "of 3 trials medians are over 0.3 points apart in 100% of draws"

"""Trainings of ElasticBSP's cases in one process (scripts/uneven_accuracies.py)."""

from __future__ import annotations

import dataclasses

import keras
import numpy as np

from trepak.scripts.elastic_bsp_cases import COMPARED, ELASTIC, cases
from trepak.scripts.uneven.tasks import task
from trepak.scripts.uneven.ways import ASP, HOROVOD, SSP
from trepak.scripts.uneven.worker import deal
from trepak.scripts.uneven_accuracies import Cluster, compare, order

_EACH = [1.0, 1.25, 1.6, 2.0]


def _leads(way: str, steps: int) -> list[int]:
    """Returns how many steps more than another a rank takes until all begin one together."""
    taken, begun, leads = [0] * len(_EACH), [0] * len(_EACH), []
    before = [*taken]
    for ended, begin in order(way, _EACH, lambda rank: _EACH[rank], steps):
        if ended is not None:
            taken[ended] += 1
            more = [count - earlier for count, earlier in zip(taken, before, strict=True)]
            leads.append(max(more) - min(more))
        before = [*taken] if len(begin) == len(_EACH) else before
        for rank in begin:
            assert begun[rank] == taken[rank]  # one step at a time
            begun[rank] += 1
    assert taken == begun and sum(taken) == steps
    return leads


def test_ranks_wait_as_their_way_says() -> None:
    assert max(_leads(HOROVOD, 40)) == 1
    assert max(_leads(SSP, 400)) == 4
    assert 1 < max(_leads(ELASTIC[0], 400)) <= 15
    assert max(_leads(ASP, 400)) > 60


def test_all_fetch_at_a_barrier() -> None:
    events = list(order(ELASTIC[0], _EACH, lambda rank: _EACH[rank], 400))
    together = sum(begin == [0, 1, 2, 3] for _, begin in events)
    assert 10 < together < 100
    waiting = sum(not begin for _, begin in events)
    assert waiting >= 3 * (together - 1)  # all but the last one that comes to it


def test_a_way_that_waits_trains_as_one_process() -> None:
    case = dataclasses.replace(cases()[0], epochs=1, decayed_epochs=0, epoch_steps=5)
    given = task(case.task)
    keras.utils.set_random_seed(3000)
    model = given.build()
    model.compile(
        keras.optimizers.SGD(case.rate, momentum=0.9),
        keras.losses.SparseCategoricalCrossentropy(from_logits=True),
    )
    hands = [deal(case, given, 3, rank, 4) for rank in range(4)]
    for step in range(5):
        chosen = np.concatenate([hand.samples[step] for hand in hands])
        model.train_on_batch(given.train[0][chosen], given.train[1][chosen])
    wanted = np.concatenate([weights.ravel() for weights in model.get_weights()])
    cluster = Cluster(case)
    for way, most in ((HOROVOD, 1e-5), (ASP, 1.0)):
        cluster.accuracy(way, 3)
        found = np.concatenate([weights.ravel() for weights in cluster.model.get_weights()])
        assert np.abs(found - wanted).max() < most, way
    assert np.abs(found - wanted).max() > 1e-3


def test_comparison_says_how_well_trials_can_tell() -> None:
    rng = np.random.default_rng(1)
    alike = {way: [*(0.85 + 0.005 * rng.normal(size=30))] for way in COMPARED}
    lines = list(compare(alike, [3]))
    assert len(lines) == 4 and lines[0].startswith(f"{HOROVOD} is ")
    above = {way: [0.86 - 0.01 * (way == ELASTIC[0])] * 30 for way in COMPARED}
    *of_ways, draws = compare(above, [3])
    assert all("is 1.00 points above elastic-bsp 15 (standard error 0.00)" in x for x in of_ways)
    assert draws == "of 3 trials medians are over 0.3 points apart in 100% of draws"

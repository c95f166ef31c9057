"""The paper's performance model: a small case by hand, what must always hold, and Figure 4b."""

from __future__ import annotations

import random

import pytest

from trepak.models import zoo
from trepak.scripts.bench import geryon_equations as equations
from trepak.scripts.bench.geryon_equations import LayerTimes

SMALL = [LayerTimes(1.0, 2.0, (1.0,)), LayerTimes(1.0, 2.0, (3.0, 1.0))]


def test_small_network_by_hand() -> None:
    """In order: layer 1 arrives at 1 and is done at 2; layer 2 arrives at 5 and is done at 6.

    Backward ends at 8 and 10; layer 2 is pushed at 12, layer 1 at 13.
    """
    assert equations.iteration_seconds(SMALL, equations.in_order(SMALL)) == 13.0
    # In reverse layer 1 arrives at 5: forward ends at 7 instead of 6.
    assert equations.iteration_seconds(SMALL, equations.in_reverse(SMALL)) == 14.0
    assert equations.compute_seconds(SMALL) == 6.0
    assert equations.transfer_seconds(SMALL) == 5.0
    assert equations.limit_seconds(SMALL) == 10.0
    assert equations.potential_speedup(SMALL) == pytest.approx(14 / 13)


def test_whole_variables_on_two_servers_by_hand() -> None:
    """Variables 0 and 2 (2 s each now) are on server 0, variable 1 (6 s) on server 1.

    In order: layer 1 arrives at 2 and is done at 3; layer 2 arrives at 6 and is done at 7.
    Backward ends at 9 and 11; server 1 has its gradient at 15, server 0 its last at 13.
    """
    pulls = equations.in_order(SMALL)
    assert [transfer.variable for transfer in pulls] == [0, 1, 2]
    assert equations.iteration_seconds(SMALL, pulls, servers=2) == 15.0


def test_no_order_beats_forward_order_nor_is_worse_than_no_overlap() -> None:
    generator = random.Random(5)
    for _ in range(200):
        layers = [
            LayerTimes(
                generator.random(),
                generator.random(),
                tuple(generator.random() for _ in range(generator.randrange(3))),
            )
            for _ in range(generator.randrange(1, 8))
        ]
        best = equations.iteration_seconds(layers, equations.in_order(layers))
        other = equations.iteration_seconds(layers, equations.at_random(layers, generator))
        worst = equations.compute_seconds(layers) + 2 * equations.transfer_seconds(layers)
        assert equations.compute_seconds(layers) - 1e-9 <= best <= other + 1e-9
        assert other <= worst + 1e-9


def test_potential_speedup_of_vgg19_is_the_papers() -> None:
    """Section II.C: 31% with a K40 at 8 Gbit/s; hardly any at 100 Gbit/s."""
    shrink = 1000
    model = zoo.build("vgg19", emulate="k40", shrink=shrink)
    at = {
        gbit: equations.potential_speedup(equations.layer_times(model, 64, gbit * 1e9 / shrink))
        for gbit in (1, 8, 100)
    }
    assert at[8] == pytest.approx(1.31, abs=0.03)
    assert at[8] > at[1] and 1.0 < at[100] < 1.05


def test_a_server_beside_each_worker_keeps_its_own_share() -> None:
    model = zoo.build("alexnet", emulate="k40", shrink=1000)
    alone, together = (
        equations.transfer_seconds(equations.layer_times(model, 1, 1e9, workers))
        for workers in (None, 8)
    )
    assert together == pytest.approx(alone * 7 / 8)

"""How `trepak bench rna` deals steps to a rank, and times them."""

from __future__ import annotations

import time
from types import SimpleNamespace
from typing import Any

import keras
import numpy as np
import pytest

from trepak.ops.step_probe import StepTimes
from trepak.scripts import bench_rna_worker as worker
from trepak.scripts.bench_rna_worker import Slowed, deal
from trepak.scripts.rna_cases import WORD_MS, Case, Uneven, cases
from trepak.scripts.rna_clock import Clock, StopAtLoss, computed
from trepak.scripts.rna_tasks import task


@pytest.fixture
def alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rank 1 of 2, without Horovod."""
    monkeypatch.setattr(worker.hvd, "rank", lambda: 1)
    monkeypatch.setattr(worker.hvd, "size", lambda: 2)


def case_of(name: str) -> Case:
    return next(case for case in cases(2) if case.name == name)


def test_a_hand_is_pass_after_pass_of_a_ranks_share(alone: None) -> None:
    hand = deal(case_of("resnet"), task("residual"), seed=3)
    in_order = hand.samples.reshape(-1)
    assert (in_order % 2 == 1).all()
    for one_pass in np.split(in_order, 4):
        assert len(set(one_pass)) == 2048
    assert (in_order[:2048] != in_order[2048:4096]).any()
    again = deal(case_of("resnet"), task("residual"), seed=3)
    np.testing.assert_array_equal(hand.samples, again.samples)
    np.testing.assert_array_equal(hand.times, again.times)
    assert (deal(case_of("resnet"), task("residual"), seed=4).times != hand.times).any()
    assert hand.times.min() >= 100 and hand.times.max() <= 600


def test_a_sentence_takes_as_long_as_it_has_words(alone: None) -> None:
    sentences = task("sentences")
    hand = deal(case_of("transformer"), sentences, seed=0)
    given = (sentences.train[0][hand.samples[:, 0]] > 0).sum(axis=1)
    np.testing.assert_allclose(hand.times, WORD_MS * given)


def test_steps_take_what_was_drawn() -> None:
    times = np.array([30.0, 90.0, 20.0] * 2000)[: worker._DEALT]
    slowed = Slowed(times, own=10.0)
    x = keras.ops.ones((1, 2))
    slowed(x, training=True)
    took = np.zeros((10, 3))
    for of_round in took:  # on a loaded machine most come late
        slowed.begin_anew()
        for step in range(3):
            began = time.perf_counter()
            slowed(x, training=True)
            of_round[step] = 1000 * (time.perf_counter() - began)
    expected = np.array([20.0, 80.0, 10.0])
    assert (took >= expected - 1).all(), took
    assert (took.min(axis=0) <= expected + 8).all(), took
    slowed(x, training=False)
    np.testing.assert_allclose(slowed.drawn(), [0.03, 0.09, 0.02])


def test_waiting_is_not_computing() -> None:
    # Begin, ready, done: of two epochs, at 10 to 13 s and at 20 to 22 s.
    steps = [
        StepTimes(0, 9.0, 10.5, 11.0),
        StepTimes(1, 11.0, 11.4, 12.0),
        StepTimes(2, 12.0, 20.9, 21.0),
        StepTimes(3, 21.0, 21.3, 21.5),
    ]
    found = computed(steps, [0.4, 0.4, 1.0, 0.3], [(10.0, 13.0), (20.0, 22.0), (30.0, 31.0)])
    # First steps count what they were to take, or what there was time for.
    assert found["computed_s"] == pytest.approx(0.4 + 0.4 + 0.9 + 0.3)
    assert found["began_s"] == pytest.approx(0.1)
    assert found["drained_s"] == pytest.approx(1.0 + 0.5)


def test_the_clock_stands_still_while_a_model_is_evaluated(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from trepak.scripts import rna_clock

    monkeypatch.setattr(rna_clock.hvd, "barrier", lambda: None)
    clock, logs = Clock(), {"val_loss": 0.5, "val_accuracy": 0.9, "accuracy": 0.8}
    for epoch in range(2):
        clock.on_epoch_begin(epoch)
        time.sleep(0.05)
        clock.on_test_begin()
        time.sleep(0.2)
        clock.on_epoch_end(epoch, logs)
    (first, *_), (second, loss, accuracy) = clock.losses
    assert 0.05 <= first <= 0.2 and 0.1 <= second < 0.3
    assert (loss, accuracy, clock.training_accuracy) == (0.5, 0.9, 0.8)
    assert 0 <= clock.shares()["idle"] <= 1


def test_a_training_ends_at_its_loss() -> None:
    stop, model = StopAtLoss(0.5), SimpleNamespace(stop_training=False)
    stop.set_model(model)
    for loss, over in ((0.6, False), (0.5, True)):
        logs: dict[str, Any] = {"val_loss": loss}
        stop.on_epoch_end(0, logs)
        assert model.stop_training is over


def test_uneven_times_are_those_of_the_case() -> None:
    rng = np.random.default_rng(0)
    times = Uneven(100, 500, 1000).draw(rng, 1000)
    assert times.min() >= 600 and times.max() <= 1100

"""How trainings on uneven clusters schedule steps, time them, and go on when interrupted."""

from __future__ import annotations

import dataclasses
import gzip
import json
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import keras
import numpy as np
import pytest

from trepak.horovod_ext.step_probe import StepTimes
from trepak.scripts.bench import elastic_bsp_cases
from trepak.scripts.bench.rna_cases import cases
from trepak.scripts.bench.uneven import clock, comparison, schedules, trainings
from trepak.scripts.bench.uneven.cases import WORD_MS, Case, Job, RankTimes, videos, words
from trepak.scripts.bench.uneven.clock import Clock, Snapshots, StopAtTarget, computed
from trepak.scripts.bench.uneven.schedules import Slowed, schedule_of
from trepak.scripts.bench.uneven.tasks import task
from trepak.scripts.bench.uneven.trainings import Keeper
from trepak.scripts.launcher import JobError


def case_of(name: str) -> Case:
    return next(case for case in cases(2) if case.name == name)


def test_a_hand_is_pass_after_pass_of_a_ranks_share() -> None:
    schedule = schedule_of(case_of("resnet"), task("residual"), seed=3, rank=1, size=2)
    in_order = schedule.samples.reshape(-1)
    assert (in_order % 2 == 1).all()
    for one_pass in np.split(in_order, 4):
        assert len(set(one_pass)) == 2048
    assert (in_order[:2048] != in_order[2048:4096]).any()
    again = schedule_of(case_of("resnet"), task("residual"), seed=3, rank=1, size=2)
    np.testing.assert_array_equal(schedule.samples, again.samples)
    np.testing.assert_array_equal(schedule.times, again.times)
    assert (
        schedule_of(case_of("resnet"), task("residual"), seed=4, rank=1, size=2).times
        != schedule.times
    ).any()
    assert schedule.times.min() >= 100 and schedule.times.max() <= 600


def test_a_sentence_takes_as_long_as_it_has_words() -> None:
    sentences = task("sentences")
    schedule = schedule_of(case_of("transformer"), sentences, seed=0, rank=1, size=2)
    given = (sentences.train[0][schedule.samples[:, 0]] > 0).sum(axis=1)
    np.testing.assert_allclose(schedule.times, WORD_MS * given)


def test_a_sentence_may_be_slowed_down_too() -> None:
    sentences = task("sentences")
    plain, slowed = (
        schedule_of(case_of(name), sentences, seed=0, rank=1, size=2).times
        for name in ("transformer", "transformer uneven")
    )
    assert (slowed - plain).min() >= 0 and (slowed - plain).max() == pytest.approx(500, abs=5)


def test_steps_take_what_was_drawn() -> None:
    times = np.array([30.0, 90.0, 20.0] * 2000)[: schedules._SCHEDULED]
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
    monkeypatch.setattr(clock.hvd, "barrier", lambda: None)
    watch, logs = Clock(), {"val_loss": 0.5, "val_accuracy": 0.9, "accuracy": 0.8}
    for epoch in range(2):
        watch.on_epoch_begin(epoch)
        time.sleep(0.05)
        watch.on_test_begin()
        time.sleep(0.2)
        watch.on_epoch_end(epoch, logs)
    (first, *_), (second, loss, accuracy) = watch.losses
    assert 0.05 <= first <= 0.2 and 0.1 <= second < 0.3
    assert (loss, accuracy, watch.training_accuracies) == (0.5, 0.9, [0.8, 0.8])
    assert 0 <= watch.shares()["idle"] <= 1


def test_weights_are_kept_every_second_and_later_more_rarely(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now = [0.0]
    monkeypatch.setattr(clock.hvd, "barrier", lambda: None)
    monkeypatch.setattr(clock.hvd, "rank", lambda: 0)
    monkeypatch.setattr(clock.time, "perf_counter", lambda: now[0])
    shown = []
    model = SimpleNamespace(
        get_weights=lambda: now[0],
        set_weights=shown.append,
        evaluate=lambda *_, **__: {"loss": shown[-1], "accuracy": 0.5},
    )
    snapshots = Snapshots(1.0)
    snapshots.set_model(model)
    snapshots.on_epoch_begin(0)
    for batch in range(2000):
        now[0] = batch / 10
        snapshots.on_train_batch_end(batch)
    snapshots.on_epoch_end(0, {"accuracy": 0.8})
    snapshots.evaluate(np.zeros(1), np.zeros(1))
    assert [seconds for seconds, *_ in snapshots.losses] == shown
    assert shown[:25] == [pytest.approx(1.0 + kept) for kept in range(25)]
    assert shown[-1] == now[0]  # an epoch's end, always
    later = np.diff([kept for kept in shown[:-1] if kept > 50]) / [
        kept for kept in shown[:-2] if kept > 50
    ]
    assert 0.04 <= later.min() and later.max() < 0.044  # until the next batch ends


@pytest.mark.parametrize(
    ("stop", "ends"),
    [(StopAtTarget(0.5), [False, True]), (StopAtTarget(None, 0.8), [False, True])],
    ids=["loss", "accuracy"],
)
def test_a_training_ends_at_its_target(stop: StopAtTarget, ends: list[bool]) -> None:
    model = SimpleNamespace(stop_training=False)
    stop.set_model(model)
    for logs, over in zip(
        ({"val_loss": 0.6, "val_accuracy": 0.7}, {"val_loss": 0.5, "val_accuracy": 0.8}),
        ends,
        strict=True,
    ):
        stop.on_epoch_end(0, logs)
        assert model.stop_training is over


@pytest.mark.parametrize("name", ["textures", "sentences"])
def test_there_are_more_samples_to_test_with(name: str) -> None:
    given = task(name)
    (x, labels), (again, _) = given.more(200), given.more(200)
    assert len(x) == len(labels) == 200
    np.testing.assert_array_equal(x, again)
    for others, _ in (given.train, given.test):
        assert not (x[:, None] == others[None, :50]).reshape(200, 50, -1).all(axis=2).any()
    assert len(given.more(0)[0]) == 0


def test_uneven_times_are_those_of_the_case() -> None:
    rng = np.random.default_rng(0)
    times = RankTimes(100, 500, 1000).draw(rng, 1000)
    assert times.min() >= 600 and times.max() <= 1100


def test_targets_are_met_between_epochs() -> None:
    # After each epoch: seconds, loss, accuracy.
    curve = [(10.0, 1.6, 0.5), (20.0, 0.8, 0.8), (30.0, 0.2, 0.9), (40.0, 0.3, 0.88)]
    assert comparison.seconds_to(curve, 1.6) == 10.0
    assert comparison.seconds_to(curve, 0.4) == pytest.approx(25.0)  # half method from 0.8 to 0.2
    assert comparison.seconds_to(curve, 0.1) is None
    assert comparison.seconds_until(curve, 0.85) == pytest.approx(25.0)


def test_videos_take_as_long_as_in_the_thesis() -> None:
    times = videos(np.random.default_rng(0), 350, 200_000) * 1219 / 350
    assert times.min() >= 156 and times.max() <= 8000
    assert times.mean() == pytest.approx(1219, rel=0.03)
    assert times.std() == pytest.approx(760, rel=0.06)


def test_sentences_take_as_long_as_they_have_words() -> None:
    rng = np.random.default_rng
    lengths, times = words(rng(0), 1000), RankTimes(sentences=True).draw(rng(0), 1000)
    np.testing.assert_allclose(times / lengths, WORD_MS)
    assert times.mean() == pytest.approx(350, rel=0.05)


def trained(method: str, seed: int) -> dict[str, Any]:
    return {"way": method, "seed": seed, "ranks": []}


def test_an_interrupted_bench_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    job = Job(cases(8)[0], ["horovod", "rna"], range(3))
    asked = []

    def broken(job: Job, output: Path) -> None:
        asked.append(list(job.seeds))
        seed = job.seeds[0]
        runs = [trained(method, seed) for method in job.methods] + [trained("rna", seed + 1)]
        output.write_text(json.dumps(runs))
        raise JobError("the machine was needed")

    monkeypatch.setattr(trainings, "run_job", broken)
    for rest in ([0, 1, 2], [1, 2], [2]):
        keeper = Keeper(job, tmp_path)
        with pytest.raises(JobError):
            keeper.run_the_rest()
        assert asked[-1] == rest
    keeper = Keeper(job, tmp_path)
    keeper.run_the_rest()  # nothing is left to measure
    assert sorted((one["way"], one["seed"]) for one in keeper.runs) == [
        (method, seed) for method in ("horovod", "rna") for seed in range(3)
    ]


def test_a_killed_bench_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def killed(job: Job, output: Path) -> None:
        output.write_text(json.dumps([trained("horovod", job.seeds[0]), trained("x", 9)]))
        monkeypatch.setattr(Keeper, "_save", lambda keeper: None)  # nothing comes after a kill
        raise KeyboardInterrupt

    job = Job(cases(8)[0], ["horovod"], range(3))
    monkeypatch.setattr(trainings, "run_job", killed)
    for done in ([], [0], [0, 1]):
        keeper = Keeper(job, tmp_path)
        assert [run["seed"] for run in keeper.runs] == done
        with pytest.raises(KeyboardInterrupt):
            keeper.run_the_rest()
        monkeypatch.undo()
        monkeypatch.setattr(trainings, "run_job", killed)
    assert [run["seed"] for run in Keeper(job, tmp_path).runs] == [0, 1, 2]


def test_what_was_measured_before_is_not_measured_again(tmp_path: Path) -> None:
    job = Job(dataclasses.replace(cases(8)[0], name="two words"), ["horovod"], range(2))
    runs = [trained("horovod", 0), trained("rna", 0)]
    (tmp_path / "two-words.json.gz").write_bytes(gzip.compress(json.dumps(runs).encode()))
    assert Keeper(job, None, tmp_path).runs == []  # another bench's: it had other methods
    runs = [trained("horovod", seed) for seed in range(3)]
    (tmp_path / "two-words.json.gz").write_bytes(gzip.compress(json.dumps(runs).encode()))
    keeper = Keeper(job, None, tmp_path)
    keeper.run_the_rest()
    assert [run["seed"] for run in keeper.runs] == [0, 1]


def test_horovod_remembers_all_tensors_of_a_network() -> None:
    names = {case.task for case in (*cases(8), *elastic_bsp_cases.cases())}
    most = max(len(task(name).build().trainable_variables) for name in names)
    assert 2 * most <= trainings._CACHED  # those of the training before may still be there

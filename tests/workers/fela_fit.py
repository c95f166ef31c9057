"""Fela as `fit` meets it: cuts, metrics, data, tuning, rules that change, and errors."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf
from fela import BATCH, SIMPLE, STEPS, Float64, alone, batches, loss, optimizer, simple
from harness import case
from rna import check_equal_on_all_ranks

import trepak
import trepak.keras as hvd

PROCESS_SETS = "dynamic"  # conditional subsets


@case
def metrics_of_ranks_without_a_token_of_the_last_sub_model() -> None:
    """With one, of one rank: merged, it is that of all samples."""
    for options in ({"threshold": 10**6, "weights": [1, 1, 8]}, {"threshold": 3, "subset": 1}):
        keras.utils.set_random_seed(1)
        model, plain = simple(), simple()
        plain.set_weights(model.get_weights())
        fela = trepak.Fela(model, SIMPLE, **options)
        for one in (model, plain):
            one.compile(keras.optimizers.SGD(0.0), loss(), metrics=["accuracy"])
        x, y = (
            np.concatenate(parts)
            for parts in zip(*(map(batches, range(trepak.size()))), strict=True)
        )
        right = plain.evaluate(x.reshape(-1, *x.shape[2:]), y.reshape(-1), verbose=0)[1]
        x, y = batches(trepak.rank())
        average = hvd.callbacks.MetricAverageCallback()
        data = x.reshape(-1, *x.shape[2:]), y.reshape(-1)
        told = model.fit(*data, BATCH, verbose=0, callbacks=[average]).history["accuracy"][0]
        assert abs(told - right) < 1e-6
        fela.close()


@case
def data_of_unknown_length() -> None:
    """Ranks go in lockstep, and an epoch ends for all where the first one has no more."""
    steps = 2 + trepak.rank()

    def generate() -> Any:
        for step in range(steps):
            yield x[step % STEPS], y[step % STEPS]

    x, y = batches(trepak.rank())
    model = simple()
    fela = trepak.Fela(model, SIMPLE, threshold=3)
    model.compile(optimizer("momentum"), loss())
    model.fit(generate(), verbose=0, callbacks=[hvd.callbacks.BroadcastGlobalVariablesCallback(0)])
    assert fela.statistics()["iterations"] == 2
    check_equal_on_all_ranks(model)
    fela.close()


@case
def automatic_cuts() -> None:
    """Rank 0's, on all ranks, with its thresholds."""
    model = simple()
    fela = trepak.Fela(model, 2)
    assert 1 <= len(fela.partition.sub_models) <= 2
    told = trepak.allgather_object((fela.partition.cuts, fela.partition.thresholds, fela.rules))
    assert all(one == told[0] for one in told)
    fela.close()


@case
def rules_that_change() -> None:
    with Float64():
        right = alone(simple, "momentum", [BATCH] * trepak.size())
        keras.utils.set_random_seed(1)
        model = simple()
        fela = trepak.Fela(model, SIMPLE, threshold=3, subset=1)
        model.compile(optimizer("momentum"), loss())
        x, y = batches(trepak.rank())
        for step, rules in enumerate(({}, {"subset": 2, "weights": (1, 2, 4)}, {"subset": None})):
            fela.change(**rules)
            model.fit(x[step], y[step], BATCH, verbose=0)
            check_equal_on_all_ranks(model)
        for got, wanted in zip(model.get_weights(), right, strict=True):
            np.testing.assert_allclose(got, wanted, rtol=1e-9, atol=1e-11)
        fela.close()


@case
def what_ordinary_training_goes_on_from() -> None:
    """Taken off, it leaves an ordinary model, optimizer state included."""
    with Float64():
        right = alone(simple, "adam", [BATCH] * trepak.size())
        keras.utils.set_random_seed(1)
        model = simple()
        fela = trepak.Fela(model, SIMPLE, threshold=3)
        model.compile(optimizer("adam"), loss())
        x, y = batches(trepak.rank())
        model.fit(x[0], y[0], BATCH, verbose=0)
        fela.close()
        for step in (1, 2):
            model.fit(x[step], y[step], BATCH, verbose=0)
        for got, wanted in zip(model.get_weights(), right, strict=True):
            np.testing.assert_allclose(got, wanted, rtol=1e-9, atol=1e-11)


@case
def tuning_keeps_the_best_case() -> None:
    """Weights change nothing: the losses are those of an ordinary training."""
    folder = Path(os.environ["OUT"]) / "tuning"
    x, y = batches(trepak.rank(), steps=30)
    arrays = x.reshape(-1, *x.shape[2:]).astype("float32"), y.reshape(-1)
    # TensorFlow 2.21's tuner holds up who ends an iterator, by seconds on busy processors.
    settings = tf.data.Options()
    settings.autotune.enabled = False
    data = tf.data.Dataset.from_tensor_slices(arrays).batch(BATCH).with_options(settings)

    def tuned(keep: Path | None) -> tuple[Any, list[float]]:
        keras.utils.set_random_seed(1)
        model = simple()
        fela = trepak.Fela(model, SIMPLE, threshold=3)
        model.compile(optimizer("momentum"), loss())
        figure = folder / "tuning.png"
        one = hvd.callbacks.FelaTuning(fela, 2, keep, figure, verbose=0)
        told = model.fit(data, verbose=0, callbacks=[one] if keep else [])
        assert not keep or (fela.rules.weights, fela.rules.subset) == one.chosen[:2]
        check_equal_on_all_ranks(model)
        fela.close()
        return one, told.history["loss"]

    size = trepak.size()
    _, plain = tuned(None)
    one, losses = tuned(folder / "tuning.json")
    if trepak.rank() == 0:  # others do not know the regularizers' loss of what they do not train
        np.testing.assert_allclose(losses, plain, rtol=1e-4)
    first = [case.weights for case in one.cases if case.subset == size]
    assert first == [(1, a, b) for a in (1, 2) for b in (1, 2) if a <= b]
    later = one.cases[len(first) :]
    best = min(one.cases[: len(first) + 1], key=lambda case: case.seconds)
    others = [weights for weights in first if weights != best.weights]
    assert [case.subset for case in later] == [1] * (1 + (best.subset == 1) * len(others))
    assert [case.weights for case in later[1:]] == (others if best.subset == 1 else [])
    assert one.chosen == min(one.cases, key=lambda case: case.seconds)
    assert trepak.allgather_object(one.chosen, name="chosen") == [one.chosen] * size
    again, _ = tuned(folder / "tuning.json")
    assert not again.cases and again.chosen == one.chosen
    if trepak.rank() == 0:
        assert (folder / "tuning.png").stat().st_size > 1000
        (folder / "tuning.json").write_text("{")
    trepak.barrier()
    with pytest.raises(ValueError, match="is damaged"):
        tuned(folder / "tuning.json")


@case
def an_error_on_one_rank_is_heard_at_once() -> None:
    """Rank 1 can't train a token; the others do not wait for their deadline. Then all go on."""
    model = simple()
    fela = trepak.Fela(model, SIMPLE, threshold=2)
    model.compile(optimizer("momentum"), loss())
    x, y = (one[0] for one in batches(trepak.rank()))
    model.fit(x, y, BATCH, verbose=0)
    trainer = fela._training._trainer
    plain = trainer.forward

    def broken(*args: Any, **kwargs: Any) -> Any:
        raise OSError("this rank has no disk")

    if trepak.rank() == 1:
        trainer.forward = broken
    began = time.monotonic()
    wrong = OSError if trepak.rank() == 1 else hvd.elastic.HorovodInternalError
    with pytest.raises(wrong, match="no disk" if trepak.rank() == 1 else "rank 1"):
        model.fit(x, y, BATCH, verbose=0)
    assert time.monotonic() - began < 20, "it has waited"
    trainer.forward = plain
    trepak.barrier()
    model.fit(x, y, BATCH, verbose=0)
    check_equal_on_all_ranks(model)
    fela.close()


@case
def who_fails_before_an_epoch_leaves_no_rank_to_wait_for_it() -> None:
    """Nothing was trained since all had the weights of the subset, so that nobody sends them."""
    model = simple()
    fela = trepak.Fela(model, SIMPLE, threshold=3, subset=1)
    model.compile(optimizer("momentum"), loss())
    x, y = (one[0] for one in batches(trepak.rank()))
    at_fault = trepak.rank() == trepak.size() - 1

    def fail(epoch: int, logs: Any = None) -> None:
        if epoch == 1 and at_fault:
            raise OSError("this rank has no disk")

    wrong = OSError if at_fault else hvd.elastic.HorovodInternalError
    with pytest.raises(wrong, match="no disk"):
        failing = keras.callbacks.LambdaCallback(on_epoch_begin=fail)
        model.fit(x, y, BATCH, epochs=2, verbose=0, callbacks=[failing])
    assert fela._training is not None
    assert not any(trepak.allgather_object(fela._training._is_apart, name="apart"))
    model.get_weights()
    check_equal_on_all_ranks(model)
    fela.close()

"""How Fela's sessions end: with their models, or with a batch that they were not opened for."""

from __future__ import annotations

import gc
import os
import time
from collections import OrderedDict
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
from fela import Float64
from harness import case
from rna import check_equal_on_all_ranks

import trepak
import trepak.keras as hvd
from trepak.horovod_ext import exchange, sessions

SAMPLES = 8
SECONDS = 20  # that what ends by itself gets


def batch(samples: int = SAMPLES, rank: int | None = None) -> tuple[Any, Any]:
    rng = np.random.default_rng([5, trepak.rank() if rank is None else rank])
    return rng.normal(size=(samples, 6)), rng.normal(size=(samples, 2))


def small(by_tokens: bool = True, **options: Any) -> tuple[Any, Any]:
    """Returns a compiled model, the same on all ranks, and what trains it by tokens."""
    keras.utils.set_random_seed(1)
    layers = [keras.layers.Dense(4, name="first"), keras.layers.Dense(2)]
    model = keras.Sequential([keras.Input((6,)), *layers])
    options = {"partition": ["first"], "threshold": 3} | options
    fela = trepak.Fela(model, **options) if by_tokens else None
    model.compile("sgd", "mse")
    return model, fela


def counts() -> list[int]:
    """Returns what this process has: sessions, threads, and sockets."""
    descriptors = sum(one.is_socket() for one in Path("/proc/self/fd").iterdir())
    return [len(sessions._open), len(os.listdir("/proc/self/task")), descriptors]


def comes_true(holds: Callable[[], bool]) -> bool:
    deadline = time.monotonic() + SECONDS
    while not holds() and time.monotonic() < deadline:
        time.sleep(0.05)
    return holds()


@case
def models_that_are_dropped_leave_nothing_behind() -> None:
    """One rank drops each later than the others do, which nobody must see as a failure."""
    staying, _ = small()
    staying.train_on_batch(*batch())
    held: list[Any] = [small()]
    held[0][0].train_on_batch(*batch())
    before = counts()
    for late in (0, 1):  # rank 0 has the token server
        for _ in range(5):
            model, fela = small()
            model.train_on_batch(*batch())
            held[:] = [(model, fela)] if trepak.rank() == late else []
            del model, fela
            gc.collect()
            staying.train_on_batch(*batch())
        ended = comes_true(lambda: bool(np.less_equal(counts(), before).all()))
        assert ended, (counts(), before)
        trepak.barrier()  # the others' sessions have ended, the last one of this rank has not
        if held:
            time.sleep(1)  # nothing says that no failure comes: it has had the time to
            held[0][1]._training.session._worker.check()
        staying.train_on_batch(*batch())
    check_equal_on_all_ranks(staying)


def alone(sizes: Sequence[Sequence[int]]) -> list[Any]:
    """Returns the weights of one process that has trained on all ranks' samples, by step."""
    model = small(by_tokens=False)[0]
    for step in sizes:
        parts = [batch(samples, rank) for rank, samples in enumerate(step)]
        model.train_on_batch(*(np.concatenate(one) for one in zip(*parts, strict=True)))
    return list(model.get_weights())


def check_weights(model: Any, right: Sequence[Any]) -> None:
    for got, wanted in zip(model.get_weights(), right, strict=True):
        np.testing.assert_allclose(got, wanted, rtol=1e-9, atol=1e-11)


def by_rank(even: int, odd: int) -> list[int]:
    return [odd if rank % 2 else even for rank in range(trepak.size())]


@case
def batches_of_any_size_by_themselves() -> None:
    """They grow on some ranks, on others they do not, and some are empty."""
    sizes = [by_rank(*one) for one in ((8, 0), (0, 5), (16, 3), (4, 40), (8, 8))]
    with Float64():
        right = alone(sizes)
        model, fela = small()
        for step in sizes:
            model.train_on_batch(*batch(step[trepak.rank()]))
        check_weights(model, right)
        fela.close()


@case
def a_larger_batch_amid_fit_is_an_error_that_names_it() -> None:
    """On the rank that has it; the others hear of it at once. Then all can begin anew."""
    rank = trepak.rank()
    sizes = [8, 16 if rank == 1 else 8]

    def generate() -> Any:
        yield from (batch(samples) for samples in sizes)

    model, fela = small()
    wrong = ValueError if rank == 1 else hvd.elastic.HorovodInternalError
    began = time.monotonic()
    with pytest.raises(wrong, match="rank 1 has a batch of 16 samples, where the first .* had 8"):
        model.fit(generate(), steps_per_epoch=2, verbose=0)
    assert time.monotonic() - began < SECONDS
    sizes.reverse()
    model.fit(generate(), steps_per_epoch=2, verbose=0)
    check_equal_on_all_ranks(model)
    fela.close()


@case
def batches_that_are_empty_on_all_ranks_are_refused() -> None:
    """Before anything has changed, whether they are the first ones or later ones."""
    model, fela = small()
    before = model.get_weights()
    for samples in (0, 8, 0):
        if samples:
            model.train_on_batch(*batch(samples))
            before = model.get_weights()
            continue
        with pytest.raises(ValueError, match="no rank has a sample in this batch"):
            model.train_on_batch(*batch(0))
        for got, wanted in zip(model.get_weights(), before, strict=True):
            np.testing.assert_array_equal(got, wanted)
    model.train_on_batch(*batch())
    check_equal_on_all_ranks(model)
    fela.close()


@case
def float16_overflows_where_one_process_does() -> None:
    """Sums over the batch would: of 8 and more gradients of about the scale of the loss."""
    policy = keras.config.dtype_policy()
    keras.config.set_dtype_policy("mixed_float16")
    try:
        (plain, _), (model, fela) = small(by_tokens=False), small()
    finally:
        keras.config.set_dtype_policy(policy)
    for one in (plain, model):
        inner = keras.optimizers.SGD(0.01)
        one.compile(keras.optimizers.LossScaleOptimizer(inner, initial_scale=2.0**13), "mse")
    parts = [batch(SAMPLES, rank) for rank in range(trepak.size())]
    for _ in range(3):
        plain.train_on_batch(*(np.concatenate(one) for one in zip(*parts, strict=True)))
        model.train_on_batch(*batch())
    check_equal_on_all_ranks(model)
    for got, wanted in zip(model.get_weights(), plain.get_weights(), strict=True):
        np.testing.assert_allclose(got, wanted, atol=1e-3)
    scales = [float(one.optimizer.dynamic_scale) for one in (model, plain)]
    assert scales[0] == scales[1] == 2.0**13, scales
    fela.close()


@case
def ranks_are_to_have_the_same_rules() -> None:
    last = trepak.size() - 1
    others: dict[str, Any] = {"threshold": 4, "staleness": 1, "hierarchical": False}
    for name, other in {**others, "partition": []}.items():
        model, fela = small(**({name: other} if trepak.rank() == last else {}))
        said = f"Fela's {name}.* is .* on rank {last} and .* on rank 0"
        with pytest.raises(ValueError, match=said):
            model.train_on_batch(*batch())
        fela.close()
    model, fela = small()
    x, y = batch()
    with pytest.raises(ValueError, match=r"y and sample_weight.*float64\[2\].*int64\[2\]"):
        model.train_on_batch(x, y.astype("int64") if trepak.rank() < last else y)
    weight = np.ones(SAMPLES)
    with pytest.raises(ValueError, match=r"y and sample_weight.*None"):
        model.train_on_batch(x, y, weight if trepak.rank() < last else None)
    with pytest.raises(ValueError, match=rf"y and sample_weight.*y: None.* on rank {last}"):
        model.train_on_batch(x, y if trepak.rank() < last else None)
    names = "ab" if trepak.rank() < last else "ba"
    with pytest.raises(ValueError, match=r"y and sample_weight.*y/b.*y/a.*y/a.*y/b"):
        model.train_on_batch(x, OrderedDict((name, y) for name in names))
    fela.close()


@case
def ranks_may_have_other_names_for_the_same_layers() -> None:
    """As where one has loaded a model before: Keras numbers layers anew."""
    if trepak.rank() == 0:
        keras.layers.Dense(1)
    keras.utils.set_random_seed(1)
    layers = [keras.layers.Dense(4), keras.layers.Dense(2)]
    model = keras.Sequential([keras.Input((6,)), *layers])
    names = {model.layers[0].name}
    assert len(set(exchange.gather([*names][0], "names"))) > 1
    fela = trepak.Fela(model, [*names], threshold=np.int64(3))
    model.compile("sgd", "mse")
    model.train_on_batch(*batch())
    check_equal_on_all_ranks(model)
    fela.close()
